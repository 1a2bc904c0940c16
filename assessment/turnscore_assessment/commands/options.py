"""What several subcommands share: options, and how an error is reported. Runs nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.figures import MOST_ROUNDS

RatingsFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="Ratings (docs/assessment.md); .gz is unpacked.")
]
RoundsOption = Annotated[int, typer.Option(min=1, max=MOST_ROUNDS, help="Resamples for an interval.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Where chance starts; the same seed gives the same figures.")]


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turns an AssessmentError inside the block into its message and exit status 1."""
    try:
        yield
    except AssessmentError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
