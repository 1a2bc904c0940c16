"""What commands share: options, the console, the client of the service, and errors as one line on stderr."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.progress import Progress
from turnscore_client import AsyncTurnScoreClient
from turnscore_client._async import AsyncCalls
from turnscore_client._files.runs import EngineTransport, FileEngine
from turnscore_client._settings import ClientSetup
from typer.core import TyperGroup

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.figures import MOST_ROUNDS


@contextmanager
def reported_errors(*others: type[Exception]) -> Iterator[None]:
    """Turns an AssessmentError, or one of the other kinds, inside the block into its message and exit status 1."""
    caught: tuple[type[Exception], ...] = (AssessmentError, *others)
    try:
        yield
    except caught as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


class Commands(TyperGroup):
    """Commands of which every AssessmentError is reported."""

    def invoke(self, ctx: Any) -> Any:
        with reported_errors():
            return super().invoke(ctx)


def refuse_input(output: Path, inputs: Iterable[Path], option: str) -> None:
    """Raises a usage error where the output is one of the inputs."""
    if output.exists() and any(output.samefile(each) for each in inputs):
        raise typer.BadParameter("must differ from the input: it would be overwritten", param_hint=option)


# Seconds for one dialogue, retries included. Chosen: six times the client's own, since no user waits.
CALL_SECONDS = 60.0
# Dialogues in flight. Chosen: some 40 turns, which fill a batch and leave the service room for others.
CALLS_IN_FLIGHT = 4


def client_of(url: str | None, seconds: float = CALL_SECONDS) -> AsyncTurnScoreClient:
    """A client of that service, or of TURNSCORE_URL's; raises BadParameter for a wrong address."""
    try:
        return AsyncTurnScoreClient(url, timeout_seconds=seconds)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


# Dialogues that an engine answers together. Chosen: enough turns of like length, and progress shows.
ENGINE_DIALOGUES_AT_ONCE = 64


def client_over(engine: FileEngine) -> AsyncCalls:
    """A client of an engine in this process, which it closes."""
    settings = ClientSetup(address="local", api_key=None, timeout_seconds=CALL_SECONDS, max_retries=0)
    return AsyncCalls(EngineTransport(engine), settings, None)


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


async def ask_all(ask: Callable[[Asked], Awaitable[Answer]], asked: Iterable[Asked], at_once: int) -> list[Answer]:
    """The answers in order, of so many calls at a time; the first failure is raised and ends the others."""
    waiting = iter(enumerate(asked))
    answers: dict[int, Answer] = {}

    async def work() -> None:
        for place, each in waiting:
            answers[place] = await ask(each)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return [answers[place] for place in range(len(answers))]


Advance = Callable[[int], None]  # Called with how many were done since the last call.


@contextmanager
def show_progress(title: str, total: int | None) -> Iterator[Advance]:
    """A progress bar on stderr, removed at the end; `total` is None where it is unknown."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, advance=done)


def command_of(options: type, run: Callable[[Any], None], *reported: type[Exception]) -> Callable[..., None]:
    """The function that typer turns into a command: its parameters are the fields of the dataclass, which `run` takes.

    The dataclass's docstring is the command's help. Errors are reported, of the other kinds, too.
    """

    def command(**given: Any) -> None:
        with reported_errors(*reported):
            run(options(**given))

    hints = get_type_hints(options, include_extras=True)
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            each.name, kind, default=empty if each.default is MISSING else each.default, annotation=hints[each.name]
        )
        for each in fields(options)
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__ = options.__doc__
    return command


def input_file(said: str) -> Any:
    """An argument that names a file, which must be there."""
    return typer.Argument(exists=True, dir_okay=False, help=said)


def file_option(said: str, *names: str) -> Any:
    """An option that names a file, which must be there."""
    return typer.Option(*names, exists=True, dir_okay=False, help=said)


RatingsFile = Annotated[Path, input_file("Ratings (docs/studies.md); .gz is unpacked.")]
RoundsOption = Annotated[int, typer.Option(min=1, max=MOST_ROUNDS, help="Resamples per interval.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same result.")]
