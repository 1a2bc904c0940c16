"""`turnscore assess` and `turnscore study`: their sub-commands put together."""

from collections.abc import Callable

import typer

from turnscore_assessment.commands import analysis, design
from turnscore_assessment.commands import study as studies

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Judging dialogue systems with people: rating sheets, reliability, power and reports.",
)
ASSESS: dict[str, Callable[..., None]] = {
    "convert": analysis.run_convert,
    "distort": analysis.run_distort,
    "metrics": analysis.run_metrics,
    "power": analysis.run_power,
    "readability": analysis.run_readability,
    "reliability": analysis.run_reliability,
    "replicate": analysis.run_replicate,
    "report": analysis.run_report,
}
for name, command in ASSESS.items():
    app.command(name)(command)
app.add_typer(design.app, name="design")

study = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Studies: workers talk with systems or read dialogues, and rate; docs/studies.md.",
)
STUDY: dict[str, Callable[..., None]] = {
    "serve": studies.run_serve,
    "invite": studies.run_invite,
    "progress": studies.run_progress,
    "export-ratings": studies.run_export_ratings,
    "delete": studies.run_delete,
    "demo": studies.run_demo,
}
for name, command in STUDY.items():
    study.command(name)(command)
