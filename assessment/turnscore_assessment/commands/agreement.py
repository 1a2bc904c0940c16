"""`turnscore agreement`: its options, and what it prints."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from typer import Argument, Option

from turnscore_assessment.command_line import CALL_SECONDS, CALLS_IN_FLIGHT, client_of, reported_errors
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.rendering import print_page

if TYPE_CHECKING:
    from turnscore_assessment.agreement.scoring import Advance, ScorerSelection


Parts = Annotated[list[str] | None, Option("--part", help="A detail of the score instead of its `value`; repeatable.")]
Bundles = Annotated[
    list[str] | None, Option("--bundle", help="Instead of a service: a bundle's folder (with a /) or name; repeatable.")
]


def agreement(
    file: Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines; .gz is unpacked.")],
    scorers: Annotated[list[str], Option("--scorer", help="A scorer to measure; repeatable.")],
    parts: Parts = None,
    url: Annotated[str | None, Option(help="The service's address; default: TURNSCORE_URL, else localhost.")] = None,
    bundles: Bundles = None,
    output: Annotated[Path, Option(file_okay=False, help="Folder for the figures.")] = Path("build/agreement"),
    level: Annotated[
        Literal["turn", "dialogue", "both"], Option(help="`both`: every level that the file has judgements for.")
    ] = "both",
    bootstrap: Annotated[int, Option(min=1, help="Resamples of dialogues per interval.")] = ROUNDS,
    seed: Annotated[int, Option(min=0)] = 0,
    concurrency: Annotated[int, Option(min=1, help="Dialogues in flight at the service.")] = CALLS_IN_FLIGHT,
    timeout: Annotated[float, Option(help="Seconds for one dialogue, retries included.")] = CALL_SECONDS,
) -> None:
    """Correlate scores, and trivial baselines, with people's judgements of the same turns."""
    from turnscore_assessment.agreement.report import build_page, measure_file, write_agreement

    choice = choose_scorers(scorers, parts or ["value"], bundles, url, timeout, concurrency)
    with reported_errors():
        report = measure_file(file, choice, level, bootstrap, seed, show_progress)
        page = build_page(report)
        written = write_agreement(report, page, output)
    print_page(replace(page, summary=[report.explanation, f"wrote {', '.join(map(str, written))}"]))


def choose_scorers(
    scorers: list[str] | None,
    parts: list[str],
    bundles: list[str] | None,
    url: str | None,
    timeout: float | None = None,
    concurrency: int = CALLS_IN_FLIGHT,
) -> "ScorerSelection":
    """The scorers of bundles, or of the service."""
    from turnscore_assessment.agreement.scoring import ScorerSelection

    if url is not None and bundles:
        raise typer.BadParameter("give either --url or --bundle")
    open_client = client_of(url, timeout)
    return ScorerSelection(
        scorers=scorers or [], parts=parts, bundles=bundles or [], open_client=open_client, concurrency=concurrency
    )


@contextmanager
def show_progress(title: str, dialogues: int | None) -> Iterator["Advance"]:
    """A progress bar on stderr, removed at the end; `dialogues` is None where their number is unknown."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=dialogues)
        yield lambda scored: progress.update(task, advance=scored)
