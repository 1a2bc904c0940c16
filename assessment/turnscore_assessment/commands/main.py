"""`turnscore-assess`: its sub-commands put together."""

from collections.abc import Callable

import typer
from turnscore_models.version_option import add_version

from turnscore_assessment.command_line import DISTRIBUTION
from turnscore_assessment.commands import analysis, compare, data, design, study, texts

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Judging dialogue systems with people: studies, reports, and scores against them.",
)
add_version(app, DISTRIBUTION)
COMMANDS: dict[str, Callable[..., None]] = {
    "compare": compare.run_compare,
    "convert": analysis.run_convert,
    "delete": study.run_delete,
    "demo": study.run_demo,
    "distort": texts.run_distort,
    "export-ratings": study.run_export_ratings,
    "invite": study.run_invite,
    "metrics": analysis.run_metrics,
    "power": analysis.run_power,
    "progress": study.run_progress,
    "readability": texts.run_readability,
    "reliability": analysis.run_reliability,
    "replicate": analysis.run_replicate,
    "report": analysis.run_report,
    "serve": study.run_serve,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(data.app, name="data")
app.add_typer(design.app, name="design")
