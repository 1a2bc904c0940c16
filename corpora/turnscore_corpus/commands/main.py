"""The program `turnscore corpus`."""

import typer

from turnscore_corpus.commands.report import report
from turnscore_corpus.commands.score import score

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(score)
app.command()(report)
