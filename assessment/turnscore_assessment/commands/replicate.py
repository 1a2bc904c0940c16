"""`turnscore-assess replicate`: compares two studies of the same systems."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import RatingsFile, RoundsOption, SeedOption
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.reported_errors import reported_errors


def run(
    first: RatingsFile,
    second: RatingsFile,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the figures.")] = Path("build/replication"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Compare two studies: correlations over systems, same conclusions, how few workers would have sufficed."""
    from turnscore_assessment.ratings.rating_file import read_ratings
    from turnscore_assessment.replication.replication import compare_studies
    from turnscore_assessment.replication.replication_page import summarize, write_replication

    words = ["turnscore-assess", "replicate", first.name, second.name, "--rounds", str(rounds), "--seed", str(seed)]
    with reported_errors():
        found = compare_studies(read_ratings(first), read_ratings(second), rounds, seed)
        written = write_replication(found, output, shlex.join(words), datetime.now(UTC).date().isoformat())
    for sentence in summarize(found):
        typer.echo(sentence)
    typer.echo(f"wrote {', '.join(str(path) for path in written)}")
