"""How commands report errors: one line on stderr and exit status 1. Errors that are not ours keep their traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from turnscore_exporters.errors import ExporterError


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turns an ExporterError inside the block into its message and exit status 1."""
    try:
        yield
    except ExporterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
