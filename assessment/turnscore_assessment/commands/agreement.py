"""`turnscore agreement` and `turnscore data convert-judged`: their options, and what they print."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from typer import Argument, Option

from turnscore_assessment.command_line import CALL_SECONDS, CALLS_IN_FLIGHT, client_of, refuse_input, reported_errors
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.rendering import print_page

if TYPE_CHECKING:
    from turnscore_assessment.agreement.scoring import Advance, ScorerSelection


class FormName(StrEnum):
    """The forms that can be read: docs/agreement.md's, the challenge's, and ratings files (docs/studies.md)."""

    JUDGED = "judged"
    DBDC3 = "dbdc3"
    STUDY = "study"


class LevelName(StrEnum):
    """The levels that judgements and scores are compared at."""

    TURN = "turn"
    DIALOGUE = "dialogue"
    BOTH = "both"


InputFile = Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines; .gz is unpacked.")]
Form = Annotated[FormName, Option(help="`judged`, see docs/agreement.md, `dbdc3`, or `study`, see docs/studies.md.")]
Parts = Annotated[list[str] | None, Option("--part", help="A detail of the score instead of its `value`; repeatable.")]
Bundles = Annotated[
    list[str] | None, Option("--bundle", help="Instead of a service: a bundle's folder (with a /) or name; repeatable.")
]


def agreement(
    file: InputFile,
    scorers: Annotated[list[str], Option("--scorer", help="A scorer to measure; repeatable.")],
    parts: Parts = None,
    url: Annotated[str | None, Option(help="The service's address; default: TURNSCORE_URL, else localhost.")] = None,
    bundles: Bundles = None,
    form: Form = FormName.JUDGED,
    output: Annotated[Path, Option(file_okay=False, help="Folder for the figures.")] = Path("build/agreement"),
    level: Annotated[LevelName, Option(help="`both`: every level that the file has judgements for.")] = LevelName.BOTH,
    bootstrap: Annotated[int, Option(min=1, help="Resamples of dialogues per interval.")] = ROUNDS,
    seed: Annotated[int, Option(min=0)] = 0,
    concurrency: Annotated[int, Option(min=1, help="Dialogues in flight at the service.")] = CALLS_IN_FLIGHT,
    timeout: Annotated[float, Option(help="Seconds for one dialogue, retries included.")] = CALL_SECONDS,
) -> None:
    """Correlate scores, and trivial baselines, with people's judgements of the same turns."""
    from turnscore_assessment.agreement.report import build_page, measure_file, write_agreement

    choice = choose_scorers(scorers, parts or ["value"], bundles, url, timeout, concurrency)
    with reported_errors():
        report = measure_file(file, form, choice, level, bootstrap, seed, show_progress)
        page = build_page(report)
        written = write_agreement(report, page, output)
    print_page(replace(page, summary=[report.explanation, f"wrote {', '.join(map(str, written))}"]))


def convert(
    source: InputFile,
    target: Annotated[Path, Argument(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    form: Form = FormName.DBDC3,
) -> None:
    """Write judged dialogues of another form in that of docs/agreement.md."""
    from turnscore_assessment.agreement.scoring import read_judged_dialogues, write_judged_dialogues

    refuse_input(target, [source], "target")
    with reported_errors():
        dialogues = read_judged_dialogues(source, form)
        write_judged_dialogues(target, dialogues)
    judged = sum(len(dialogue.turn_qualities) for dialogue in dialogues)
    typer.echo(f"wrote {target}: {len(dialogues)} dialogues, {judged} judged turns")


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
def show_progress(title: str, dialogues: int) -> Iterator["Advance"]:
    """A progress bar on stderr, removed at the end."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=dialogues)
        yield lambda scored: progress.update(task, advance=scored)
