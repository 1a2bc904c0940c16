"""`turnscore-assess report`: one study, from its ratings to a page with tables, charts and tests."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import RatingsFile, RoundsOption, SeedOption
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.reported_errors import reported_errors


def run(
    ratings: RatingsFile,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the report.")] = Path("build/assessment"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Report on a study: who rated in earnest, how good each system is, which differences are more than chance."""
    from turnscore_assessment.ratings.rating_file import read_ratings
    from turnscore_assessment.report.study_files import write_report
    from turnscore_assessment.report.study_page import summarize
    from turnscore_assessment.report.study_report import build_report

    words = ["turnscore-assess", "report", ratings.name, "--rounds", str(rounds), "--seed", str(seed)]
    with reported_errors():
        report = build_report(read_ratings(ratings), rounds, seed)
        written = write_report(report, output, shlex.join(words), datetime.now(UTC).date().isoformat())
    for sentence in summarize(report):
        typer.echo(sentence)
    typer.echo(f"wrote {', '.join(str(path) for path in written)}")
