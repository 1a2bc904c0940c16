"""Options that several subcommands share."""

from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.figures import MOST_ROUNDS

RatingsFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="Ratings (docs/assessment.md); .gz is unpacked.")
]
RoundsOption = Annotated[int, typer.Option(min=1, max=MOST_ROUNDS, help="Resamples per interval.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random draws; the same seed gives the same figures.")]
