"""How commands report errors: one line on stderr and exit status 1. Errors that are not ours keep their traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnscore_assessment.errors import AssessmentError


@contextmanager
def reported_errors(*others: type[Exception]) -> Iterator[None]:
    """Turns an AssessmentError, or one of the other kinds, inside the block into its message and exit status 1."""
    caught: tuple[type[Exception], ...] = (AssessmentError, *others)
    try:
        yield
    except caught as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
