"""`turnscore corpus report`: summarises an output as text and as a page."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from turnscore_corpus.commands.reported_errors import reported_errors


def report(
    output: Annotated[str, typer.Argument(help="A folder that `score` wrote or is still writing.")],
    html: Annotated[Path | None, typer.Option(dir_okay=False, help="Also write an HTML page to this file.")] = None,
) -> None:
    """Summarise the scores by scorer, system and day, what drifted, and the worst and best dialogues."""
    try:
        from turnscore_corpus.report.pages import make_page, make_text
        from turnscore_corpus.report.tallies import read_corpus
    except ModuleNotFoundError as error:
        typer.echo(f"error: a report needs {error.name}: pip install ./assessment in a checkout of turnscore", err=True)
        raise typer.Exit(1) from None

    with reported_errors():
        corpus = read_corpus(output)
        typer.echo(make_text(corpus), nl=False)
        if html is not None:
            command = shlex.join(["turnscore", *sys.argv[1:]])
            html.write_text(make_page(corpus, command, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), encoding="utf-8")
