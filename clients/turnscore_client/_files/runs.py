"""What the commands that score files share: engines, options, progress, and the end of a run."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol, TypeVar, cast

import turnscore_wire as wire
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from turnscore_client import _defaults
from turnscore_client._async import AsyncTurnScoreClient
from turnscore_client._calls import Call, R
from turnscore_client._errors import TurnScoreError, error_from_reply
from turnscore_client._options import Clock, Tls
from turnscore_client._retry import Attempts

T = TypeVar("T")

STOPPED = 3  # the exit code of a run that the same command resumes

Request = wire.ScoreRequest | wire.DialogueRequest
Reply = wire.ScoreReply | wire.DialogueReply | wire.ErrorReply


class FileEngine(Protocol):
    """Answers what a file asks: in this process, on a cluster, or through a service."""

    @property
    def limits(self) -> wire.Limits: ...

    @property
    def models(self) -> Sequence[wire.ModelDescription]:
        """What is loaded, in the order in which scores come."""

    def answer(self, requests: Sequence[Request]) -> Sequence[Reply]:
        """A reply for each request, in order."""

    def close(self) -> None:
        """Ends it."""


class EngineTransport:
    """Sends a client's calls to an engine, in a thread: what is asked while it computes goes together the next time."""

    def __init__(self, engine: FileEngine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._working: asyncio.Task[None] | None = None

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The engine's reply. Raises the error that it is."""
        if call.request is None:
            return cast(
                "R", wire.ModelsReply(request_id="local", models=list(self._engine.models), limits=self._engine.limits)
            )
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((call.request, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        reply = await future
        if isinstance(reply, wire.ErrorReply):
            raise error_from_reply(reply)
        return cast("R", reply)

    async def _work(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                replies = await asyncio.to_thread(self._engine.answer, [request for request, _ in taken])
            except Exception as error:
                error_reply = wire.ErrorDetail(code=wire.ErrorCode.INTERNAL, message=f"the engine failed: {error}")
                replies = [wire.ErrorReply(error=error_reply, request_id="local")] * len(taken)
            for (_, future), reply in zip(taken, replies, strict=True):
                if not future.done():
                    future.set_result(reply)

    async def open_stream(self, metadata: Any, request_id: str | None, attempts: Attempts) -> NoReturn:
        raise NotImplementedError  # a file has no live conversation: nothing here opens one

    async def close(self) -> None:
        """Ends the engine, once it has answered."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        await asyncio.to_thread(self._engine.close)


def _of_service(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Service", **more)


Url = Annotated[
    str | None, typer.Option(help=f"The service's address; default: {_defaults.URL_VARIABLE}, else {_defaults.URL}.")
]
_KEY = f"The API key; better set as {_defaults.API_KEY_VARIABLE}: others can read a command's options."
_WAIT = "Seconds to wait for a service that takes no line: full, restarting or gone."
ApiKey = Annotated[str | None, _of_service(_KEY)]
_MOST = f"Most lines asked at once; default: {_defaults.CONCURRENCY}, or of an engine {_defaults.ENGINE_CONCURRENCY}."
Concurrency = Annotated[int | None, _of_service(_MOST, min=1, show_default=False)]
Timeout = Annotated[float, _of_service("Seconds for one call; of a file's, twice as many after a timeout.")]
Wait = Annotated[float, _of_service(_WAIT, min=0)]
CaFile = Annotated[
    Path | None, _of_service("PEM: the authority of the service's certificate; default: the public ones.")
]
CertFile = Annotated[Path | None, _of_service("PEM: your certificate, for a service that asks for one.")]
KeyFile = Annotated[Path | None, _of_service("PEM: the private key of your certificate.")]


def open_client(
    url: str | None,
    api_key: str | None,
    timeout: float,
    files: tuple[Path | None, ...],
    max_retries: int = _defaults.MAX_RETRIES,
) -> AsyncTurnScoreClient:
    """A client of the service. Raises a usage error for options that make no sense."""
    try:
        tls = Tls(*files) if any(files) else None
        return AsyncTurnScoreClient(url, api_key=api_key, timeout_seconds=timeout, max_retries=max_retries, tls=tls)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def is_service(engine: str) -> bool:
    """Whether what `--engine` names is a running service's address."""
    return "://" in engine


def refuse_options(context: typer.Context, names: Sequence[str], reason: str) -> None:
    """Raises a usage error for the first of these that stands on the command line."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")


def split_names(text: str | None, option: str) -> list[str] | None:
    """The names between commas. Raises a usage error for an empty one."""
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter("has an empty name", param_hint=option)
    return names


class StoppedError(Exception):
    """A run ended early; the same command resumes it."""


@contextmanager
def reported_errors(*failures: type[Exception], refusals: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Ends the command with one line on stderr and an exit code: 3 where it resumes, 2 for a refusal, else 1."""
    failed: tuple[type[Exception], ...] = (TurnScoreError, OSError, *failures)
    try:
        yield
        return
    except BrokenPipeError:
        raise  # the reader of our output left; the command line framework ends quietly
    except StoppedError as error:
        told, code = f"stopped: {error}; repeat the command to resume", STOPPED
    except refusals as error:
        told, code = str(error), 2
    except failed as error:
        told, code = str(error), 1
    typer.echo(f"turnscore: {told}", err=True)
    raise typer.Exit(code)


@contextmanager
def interruptible(stop: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Has SIGINT and SIGTERM call this, where the system lets them."""
    before: dict[signal.Signals, Any] = {}
    try:
        with suppress(ValueError):  # another thread than the main one
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns. Raises StoppedError where SIGINT or SIGTERM came."""
    loop, task, is_stopped = asyncio.get_running_loop(), asyncio.create_task(work), False

    # A KeyboardInterrupt would be raised anywhere, and pydantic makes another error of it.
    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True
        loop.call_soon_threadsafe(task.cancel)

    with interruptible(stop):
        await asyncio.wait([task])
    if is_stopped:
        raise StoppedError("interrupted")
    return task.result()


@contextmanager
def show_progress(
    unit: str, total: int | None, clock: Clock, *, done: int = 0, is_hidden: bool = False
) -> Iterator[Callable[[int, int, str], None]]:
    """Gives what notes how much of the total is done, how many units this run did, and more to say.

    It shows a bar on a terminal, unless that is hidden, and lines in a log.
    """
    console = Console(stderr=True)
    if is_hidden or not console.is_terminal:
        yield _progress_in_lines(unit, total, clock, done)
        return
    parts = TextColumn("scoring"), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
    with Progress(*parts, TimeRemainingColumn(), console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task("", total=total, completed=done)

        def note(done: int, count: int, more: str) -> None:
            bar.update(task, completed=done, description=", ".join(filter(None, [f"{count:,} {unit}", more])))

        yield note


def _progress_in_lines(unit: str, total: int | None, clock: Clock, before: int) -> Callable[[int, int, str], None]:
    began_at = told_at = clock.now()

    def note(done: int, count: int, more: str) -> None:
        nonlocal told_at
        now = clock.now()
        if now - told_at < _defaults.PROGRESS_SECONDS:
            return
        told_at = now
        told = [f"{count:,} {unit}", f"{count / (now - began_at):.1f} {unit} per second"]
        if total and done > before:
            left = timedelta(seconds=round((total - done) * (now - began_at) / (done - before)))
            told += [f"{100 * done / total:.0f} %", f"{left} left"]
        typer.echo("turnscore: " + ", ".join(filter(None, [*told, more])), err=True)

    return note
