"""The program `turnscore-corpus`."""

import typer
from turnscore_models.version_option import add_version

from turnscore_corpus.commands.report import report
from turnscore_corpus.commands.score import score

DISTRIBUTION = "turnscore-corpus"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
add_version(app, DISTRIBUTION)
app.command()(score)
app.command()(report)
