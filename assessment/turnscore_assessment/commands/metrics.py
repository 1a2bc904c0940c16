"""`turnscore-assess metrics`: scorers, and any other numbers, against the judgements of a study's workers."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnscore_assessment.agreement.command import show_progress
from turnscore_assessment.commands.options import RatingsFile, RoundsOption, SeedOption
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.reported_errors import reported_errors
from turnscore_assessment.service_client import CALLS_IN_FLIGHT, client_of

if TYPE_CHECKING:
    from turnscore_assessment.metrics.metrics_job import MetricsJob


def run(
    ratings: RatingsFile,
    scores: Annotated[
        list[Path] | None,
        typer.Argument(exists=True, dir_okay=False, help="CSV with a column `line`, `dialogue` or `system`."),
    ] = None,
    scorers: Annotated[list[str] | None, typer.Option("--scorer", help="A scorer to ask; repeatable.")] = None,
    bundles: Annotated[
        list[str] | None, typer.Option("--bundle", help="Instead of a service: a bundle's folder or name; repeatable.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The service; else TURNSCORE_URL, else localhost.")] = None,
    parts: Annotated[
        list[str] | None, typer.Option("--part", help="An entry of a score's details beside `value`; repeatable.")
    ] = None,
    per_system: Annotated[
        int | None, typer.Option(min=1, help="Most dialogues of each system that scorers score.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(dir_okay=False, help="CSV to write the scorers' scores to.")] = None,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the figures.")] = Path("build/metrics"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Correlate scorers, columns of numbers and lengths with people's judgements of systems and of dialogues."""
    from turnscore_assessment.agreement.scoring import ScorerChoice
    from turnscore_assessment.metrics.metrics_job import MetricsJob, run_metrics_job
    from turnscore_assessment.metrics.metrics_page import summarize, write_metrics

    if url is not None and bundles:
        raise typer.BadParameter("give either --url or --bundle")

    job = MetricsJob(
        ratings=ratings,
        scores=scores or [],
        choice=ScorerChoice(
            scorers=scorers or [], bundles=bundles or [], open_client=client_of(url), concurrency=CALLS_IN_FLIGHT
        ),
        parts=["value", *(parts or [])],
        per_system=per_system,
        keep=keep,
        rounds=rounds,
        seed=seed,
    )
    with reported_errors():
        report = run_metrics_job(job, show_progress)
        written = write_metrics(report, output, _describe(job), datetime.now(UTC).date().isoformat())
    for sentence in summarize(report):
        typer.echo(sentence)
    typer.echo(f"wrote {', '.join(str(path) for path in written)}")


def _describe(job: "MetricsJob") -> str:
    """The command that gives the same figures, with names in place of local paths."""
    words = ["turnscore-assess", "metrics", job.ratings.name, *(path.name for path in job.scores)]
    words += [word for name in job.choice.scorers for word in ("--scorer", name)]
    words += [word for name in job.choice.bundles for word in ("--bundle", Path(name).name)]
    words += [word for name in job.parts[1:] for word in ("--part", name)]
    words += ["--per-system", str(job.per_system)] if job.per_system else []
    return shlex.join([*words, "--rounds", str(job.rounds), "--seed", str(job.seed)])
