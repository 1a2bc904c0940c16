"""`turnscore score` and `turnscore info`: options, a run that the same command resumes, and what is a usage error."""

import asyncio
import math
import signal
import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Protocol, TypeVar, cast

import turnscore_wire as wire
import typer
from rich import box
from rich.console import Console
from rich.table import Column, Table

from turnscore_client import _defaults
from turnscore_client._async import AsyncCalls, AsyncTurnScoreClient
from turnscore_client._calls import Call, R
from turnscore_client._errors import TurnScoreError, error_from_reply
from turnscore_client._files import scoring
from turnscore_client._files.rows import (
    BadLayoutError,
    Line,
    NotOurOutputError,
    Row,
    RowOutput,
    failures_in,
    is_file,
    is_row_of,
    is_worth_asking_again,
    open_rows,
    read_lines,
    rows_in,
    size_of,
)
from turnscore_client._files.scoring import Demands, Pace, Patient, StoppedError, Summary, UndeliveredError
from turnscore_client._options import Clock, Tls
from turnscore_client._retry import Attempts, SystemClock, is_retryable
from turnscore_client._settings import ClientSetup

T = TypeVar("T")
Deliver = Callable[[Row], Awaitable[None]]

STOPPED = 3  # the exit code of a run that the same command resumes
TOO_LOW = 4  # that of a run in which everything was scored, and what was demanded is not reached


class FileEngine(Protocol):
    """Scores without a service; other distributions register theirs."""

    limits: wire.Limits
    models: Sequence[wire.ModelDescription]

    def answer(
        self, requests: Sequence[wire.ScoreRequest | wire.DialogueRequest]
    ) -> Sequence[wire.ScoreReply | wire.DialogueReply | wire.ErrorReply]:
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


@dataclass(frozen=True, kw_only=True)
class FileJob:
    file: Path
    output: Path
    scorers: list[str] | None
    concurrency: int
    timeout_seconds: float = _defaults.TIMEOUT_SECONDS
    wait_seconds: float = _defaults.WAIT_SECONDS
    clock: Clock | None = None
    # Gets every row in order before it is written. What the output holds was delivered; after a crash the rows that
    # were in flight are delivered again, so let the receiver know a row by its `line`. UndeliveredError stops the run.
    deliver: Deliver | None = None
    demands: Demands = field(default_factory=Demands)
    junit: Path | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns; a failure of the service or of a file is one line on stderr and exit code 1."""
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        raise  # the reader of our output left; the command line framework ends quietly
    except (TurnScoreError, BadLayoutError, OSError, EOFError, zlib.error) as error:
        typer.echo(f"turnscore: {error}", err=True)
        raise typer.Exit(1) from None


async def score_file(client: AsyncCalls, job: FileJob) -> int:
    """Scores what the output does not hold yet, and says on stderr how it went; the exit code.

    The output is locked before it is read, so that a second run cannot read what this one is about to add to. An
    unreachable service, and an output that is not this input's, are found before anything is written.
    """
    clock = job.clock or SystemClock()
    began_at = clock.now()
    summary, stopped = Summary(), None
    short = [("user", "well?"), ("system", "ok.")]  # for scorers of user turns, and the others
    async with client:
        with _open(job.output) as output:
            lines = _lines_left(job, output, summary)
            known = _KnownRows(iter(()), summary.asked)
            # What a pipe gave is read, and does not come again.
            is_again = summary.to_ask_again > 0 and is_file(job.file) and job.file.is_file()
            if summary.to_ask_again:
                how = " and are asked again" if is_again else "; asking them again needs a file instead of a pipe"
                typer.echo(f"turnscore: {summary.to_ask_again} lines in {job.output} failed{how}", err=True)
            if is_again:
                lines, known, summary = read_lines(job.file), _KnownRows(output.rows(), summary.asked), Summary()
            patient = Patient(
                pace=Pace(job.concurrency, clock),
                clock=clock,
                wait_seconds=job.wait_seconds,
                timeout_seconds=job.timeout_seconds,
                probe=lambda timeout: client.score_dialogue(short, scorers=job.scorers, timeout_seconds=timeout),
            )
            try:
                with _interruptible(), output.rewriting() if is_again else nullcontext(output) as written:
                    await _score_left(client, job, lines, known, written, patient, summary)
            except (StoppedError, UndeliveredError) as error:
                stopped = str(error)
            except asyncio.CancelledError:
                stopped = "interrupted"
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
    summary.show(clock.now() - began_at, Console(stderr=True))
    if stopped is not None:
        typer.echo(f"turnscore: stopped: {stopped}; repeat the command to resume", err=True)
        return STOPPED
    shortfalls = summary.shortfalls(job.demands)
    if job.junit is not None:
        scoring.write_junit(job.junit, job.file.name, rows_in(job.output), job.demands, shortfalls)
    for each in shortfalls:
        typer.echo(f"turnscore: {each}", err=True)
    return summary.exit_code() or (TOO_LOW if shortfalls else 0)


async def _score_left(
    client: AsyncCalls,
    job: FileJob,
    lines: Iterator[Line],
    known: "_KnownRows",
    output: RowOutput,
    patient: Patient,
    summary: Summary,
) -> None:
    is_told = False

    async def read_models(timeout: float) -> wire.ModelsReply:
        nonlocal is_told
        try:
            return await client.models(timeout_seconds=timeout)
        except TurnScoreError as error:
            if is_retryable(error) and job.wait_seconds and not is_told:
                is_told = True
                typer.echo(f"turnscore: waits {job.wait_seconds:g} s at most: {error}", err=True)
            raise

    models = await patient.ask(read_models)
    _check_scorers(job, models, known.scorers)
    if summary.rows:
        typer.echo(f"turnscore: {summary.rows} lines are in {job.output}; going on behind them", err=True)
    output.begin()
    with scoring.show_progress(size_of(job.file), job.output, patient.clock) as note:
        outcomes = scoring.score_lines(client, lines, job.scorers, patient, models.limits, known.find)
        async with aclosing(outcomes):
            async for line, row in outcomes:
                if not known.takes(line) and job.deliver is not None:
                    await job.deliver(row)
                output.append(row)
                summary.add(row)
                note(line, summary.failed)


class _KnownRows:
    """The rows of an output that is written again, of which those that failed are not known; and its scorers."""

    def __init__(self, rows: Iterator[Row], scorers: set[str]) -> None:
        self.scorers = scorers
        self._rows = rows
        self._next = next(rows, None)
        self._found: set[int] = set()

    def find(self, line: Line) -> Row | None:
        """That of the line; lines are asked for in order."""
        if (row := self._next) is None or row["line"] != line.number:
            return None
        self._next = next(self._rows, None)
        if is_worth_asking_again(row) or not is_row_of(row, line.raw):
            return None
        self._found.add(line.number)
        return row

    def takes(self, line: Line) -> bool:
        """Whether the line's row was found, once for each."""
        was_found = line.number in self._found
        self._found.discard(line.number)
        return was_found


def _check_scorers(job: FileJob, models: wire.ModelsReply, made: set[str]) -> None:
    """Refuses an output of other scorers than are asked now, and demands that these scorers cannot meet."""
    asked = set(job.scorers or (each.scorer for each in models.models if each.is_default))
    if made and asked and made != asked:
        told = f"'{job.output}' holds scores of {_join(made)}, and those of {_join(asked)} are asked"
        raise typer.BadParameter(f"{told}; name another output, or the same --scorers", param_hint="--output")
    known = {each.scorer for each in models.models}
    for names, option in ((job.scorers or (), "--scorers"), (job.demands.least, "--fail-under")):
        if known and (unknown := set(names) - known):
            raise typer.BadParameter(f"no such scorer: {_join(unknown)}; there are {_join(known)}", param_hint=option)
    labelled = {each.scorer for each in models.models if each.threshold is not None}
    if known and job.demands.no_low and not asked & labelled:
        message = f"{_join(asked)} gives no labels, as it has no threshold; with labels: {_join(labelled) or 'none'}"
        raise typer.BadParameter(message, param_hint="--fail-on")


def _join(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _lines_left(job: FileJob, output: RowOutput, summary: Summary) -> Iterator[Line]:
    """The lines of the input behind those that the output holds, which are counted."""
    last: Row | None = None
    try:
        for last in output.rows():
            summary.add(last)
    except (NotOurOutputError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, NotOurOutputError) else "exists, and is no output of this command"
        raise typer.BadParameter(f"'{job.output}' {reason}", param_hint="--output") from None
    lines = read_lines(job.file)
    if last is None:
        return lines
    for done, line in enumerate(lines, start=1):
        if line.number == last["line"] and done == summary.rows and is_row_of(last, line.raw):
            return lines
        if line.number >= last["line"]:
            break
    message = f"'{job.output}' exists, and holds the scores of another file than '{job.file}'; name another output"
    raise typer.BadParameter(message, param_hint="--output")


def _open(path: Path) -> RowOutput:
    try:
        return open_rows(path)
    except (OSError, NotOurOutputError) as error:
        raise typer.BadParameter(f"'{path}': {error}", param_hint="--output") from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets SIGTERM and SIGINT end the run between two rows, where the system has them."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    taken = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread than the main one
            loop.add_signal_handler(number, task.cancel)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


if TYPE_CHECKING:
    from turnscore_client.writers._entries import RowWriter

Url = Annotated[
    str | None, typer.Option(help=f"The service's address; default: {_defaults.URL_VARIABLE}, else {_defaults.URL}.")
]
ApiKey = Annotated[
    str | None,
    typer.Option(help=f"The API key; better set as {_defaults.API_KEY_VARIABLE}: others can read a command's options."),
]
Timeout = Annotated[float, typer.Option(help="Seconds for one call; of a file's, twice as many after a timeout.")]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM: the authority of the service's certificate; default: the public ones.")
]
CertFile = Annotated[Path | None, typer.Option(help="PEM: your certificate, for a service that asks for one.")]
KeyFile = Annotated[Path | None, typer.Option(help="PEM: the private key of your certificate.")]


def _check_input(file: Path | None) -> Path | None:
    if file is None:
        return None
    if is_file(file) and not file.exists():
        raise typer.BadParameter(f"file '{file}' does not exist")
    if file.is_dir():
        raise typer.BadParameter(f"'{file}' is a folder")
    return file


InputFile = Annotated[
    Path | None,
    typer.Argument(
        callback=_check_input,
        help="Input: JSON lines, a table (.csv) or transcripts (.txt); .gz is unpacked, - is the standard input.",
    ),
]
OneTurn = Annotated[str | None, typer.Option(help="Score this one response instead of a file.")]
ItsContext = Annotated[
    list[str] | None, typer.Option(help="With --turn: a turn before it, oldest first, the user's last; repeatable.")
]
FailUnder = Annotated[
    list[str] | None, typer.Option(help="Exit with 4 where the mean value is lower, such as quality=0.4; repeatable.")
]
FailOn = Annotated[Literal["low"] | None, typer.Option(help="Exit with 4 where a turn has this label.")]
JUnit = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Also write the rows as JUnit's XML, for CI; needs --output.")
]
OutputFile = Annotated[
    Path,
    typer.Option("--output", "-o", dir_okay=False, help="Output, JSON lines; .gz is packed, - is the standard output."),
]
ScorerNames = Annotated[str | None, typer.Option(help="Scorers, separated by commas; default: the service's.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default=False,
        help=f"Most lines scored at once; default: {_defaults.CONCURRENCY}, or of an engine "
        f"{_defaults.ENGINE_CONCURRENCY}.",
    ),
]
Wait = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for a service that takes no line: full, restarting or gone.")
]
To = Annotated[
    str | None,
    typer.Option(
        help="Write the scores to this tool as well, by each line's trace_id, span_id and session_id: langfuse, "
        "langsmith, mlflow, opik or phoenix."
    ),
]
EngineName = Annotated[
    str | None, typer.Option(help="What scores: local, ray (RAY_ADDRESS, else this machine), or a service's address.")
]
Bundles = Annotated[str | None, typer.Option(help="Bundles of an engine, separated by commas; default: the starters.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole reply as JSON.")]


def score(
    file: InputFile = None,
    url: Url = None,
    output: OutputFile = Path("-"),
    turn: OneTurn = None,
    context: ItsContext = None,
    scorers: ScorerNames = None,
    engine: EngineName = None,
    models: Bundles = None,
    api_key: ApiKey = None,
    concurrency: Concurrency = None,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
    wait: Wait = _defaults.WAIT_SECONDS,
    to: To = None,
    fail_under: FailUnder = None,
    fail_on: FailOn = None,
    junit: JUnit = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
) -> None:
    """Scores a file: each line is a turn {"context", "response"} or a dialogue {"turns"} or {"messages"}.

    Each gives one line of output, with everything that the line holds. Lines that the output holds already are not
    scored again, unless they failed. Exit code 0: all is scored; 1: some line or turn failed; 3: stopped; repeat the
    command to resume; 4: below what --fail-under or --fail-on demands.
    """
    if (file is None) == (turn is None):
        raise typer.BadParameter("give a FILE or a --turn", param_hint="FILE")
    if turn is not None and (is_file(output) or to is not None):
        raise typer.BadParameter("prints its scores; give a FILE", param_hint="--turn")
    if turn is None and context:
        raise typer.BadParameter("needs a --turn", param_hint="--context")
    if junit is not None and (turn is not None or not is_file(output)):
        raise typer.BadParameter("needs a FILE and an --output", param_hint="--junit")
    demands = Demands(least=_read_least(fail_under or []), no_low=fail_on == "low")
    _check_apart(file, output, junit)
    names, bundles = _split(scorers, "--scorers"), _split(models, "--models")
    tool = None if to is None else _open_tool(to)
    is_local = engine is not None and "://" not in engine
    if engine is not None and is_local:
        client: AsyncCalls = _open_engine(engine, bundles, names)
    else:
        # Without retries of its own: the command asks again, at the pace of all lines together.
        client = _open_client(engine or url, api_key, timeout, (ca_file, cert_file, key_file), max_retries=0)
    if file is None:
        raise typer.Exit(run(_score_one(client, turn or "", context or [], names, demands)))
    job = FileJob(
        file=file,
        output=output,
        scorers=names,
        concurrency=concurrency or (_defaults.ENGINE_CONCURRENCY if is_local else _defaults.CONCURRENCY),
        timeout_seconds=timeout,
        wait_seconds=wait,
        clock=client._clock,
        deliver=None if tool is None else tool.deliver,
        demands=demands,
        junit=junit,
    )
    try:
        code = run(score_file(client, job))
    finally:
        if tool is not None:
            tool.close()
            typer.echo(f"turnscore: {tool.written} scores written to {to}", err=True)
    raise typer.Exit(code)


def _check_apart(file: Path | None, output: Path, junit: Path | None) -> None:
    """Refuses to write over the input, or the report over the output."""
    for path, option in ((output, "--output"), (junit, "--junit")):
        if file is not None and path is not None and _are_same(path, file):
            raise typer.BadParameter("is the file to be scored", param_hint=option)
    if junit is not None and _are_same(junit, output):
        raise typer.BadParameter("is the --output", param_hint="--junit")


def _are_same(one: Path, other: Path) -> bool:
    """Whether both are one file, which need not be there yet."""
    if not one.exists() or not other.exists():
        return is_file(one) and one.resolve() == other.resolve()
    return is_file(one) and is_file(other) and one.samefile(other)


async def _score_one(
    client: AsyncCalls, response: str, context: Sequence[str], scorers: list[str] | None, demands: Demands
) -> int:
    """Prints the scores of one turn, as a table for a person and as JSON for a program; the exit code."""
    spoken = [("system" if (len(context) - place) % 2 == 0 else "user", text) for place, text in enumerate(context)]
    async with client:
        reply = await client.score(context=spoken, response=response, scorers=scorers)
    summary = Summary()
    summary.add({"line": 1, **reply.model_dump(mode="json")})
    if Console().is_terminal:
        table = Table("scorer", "value", "percentile", "label", "why", "model")
        for name, each in reply.scores.items():
            percentile = "" if each.percentile is None else f"{each.percentile:.0f}"
            why = ", ".join((*each.reasons, *each.signals, *each.warnings))
            table.add_row(name, f"{each.value:.3f}", percentile, each.label or "", why, each.model)
        Console().print(table)
    else:
        typer.echo(reply.model_dump_json())
    failures, shortfalls = failures_in(reply.model_dump(mode="json")), summary.shortfalls(demands)
    for told in (*failures, *shortfalls):
        typer.echo(f"turnscore: {told}", err=True)
    return 1 if failures else TOO_LOW if shortfalls else 0


def _read_least(given: Sequence[str]) -> dict[str, float]:
    """`quality=0.4` as scorer and least mean value."""
    least = {}
    for each in given:
        name, _, number = each.partition("=")
        try:
            least[name] = float(number)
        except ValueError:
            least[name] = math.nan
        if not name or not math.isfinite(least[name]):
            raise typer.BadParameter(
                f"is {each!r}; give a scorer and a number, such as quality=0.4", param_hint="--fail-under"
            )
    return least


def info(
    url: Url = None,
    api_key: ApiKey = None,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Lists the loaded models."""

    async def fetch() -> wire.ModelsReply:
        async with _open_client(url, api_key, timeout, (ca_file, cert_file, key_file)) as client:
            return await client.models()

    reply = run(fetch())
    if as_json:
        typer.echo(reply.model_dump_json())
        return
    # columns of text that no terminal shows, so that a pipe gets a model's row in one line
    console = Console() if Console().is_terminal else Console(width=200)
    # Fits 80 columns.
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD if console.is_terminal else None, "padding": (0, 1, 0, 0)}
    names = (Column(each, overflow="fold") for each in ("scorer", "model", "graph"))
    table = Table(*names, "tokens of\ntext / turn", "low\nbelow", "default", **look)
    for model in reply.models:
        below = "" if model.threshold is None else f"{model.threshold:.3g}"
        default = "yes" if model.is_default else "stand-in" if model.stand_in else "no"
        limits = f"{model.max_text_tokens} / {model.max_turn_tokens}"
        table.add_row(model.scorer, model.model, model.graph, limits, below, default)
    console.print(table)
    if reply.candidates:
        candidates = Table("scorer", "candidate version", "graph", "role", "share", **look)
        for each in reply.candidates:
            candidates.add_row(each.scorer, each.model, each.graph, each.role, f"{each.share:g}")
        console.print(candidates)


def _split(text: str | None, option: str) -> list[str] | None:
    """The names between commas."""
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter("has an empty name", param_hint=option)
    return names


def _open_engine(name: str, bundles: list[str] | None, scorers: list[str] | None) -> AsyncCalls:
    """Calls that this machine, or a cluster, answers."""
    from turnscore_client._command.registry import find_engine

    open_engine = find_engine(name)
    try:
        engine = open_engine(bundles, scorers)
    except Exception as error:  # of another distribution, whose errors say what to do
        typer.echo(f"turnscore: {error}", err=True)
        raise typer.Exit(1) from None
    settings = ClientSetup(address=name, api_key=None, timeout_seconds=_defaults.WAIT_SECONDS, max_retries=0)
    return AsyncCalls(EngineTransport(engine), settings, None)


def _open_tool(name: str) -> "RowWriter":
    from turnscore_client import writers
    from turnscore_client.writers._entries import RowWriter

    try:
        return RowWriter(name, writers.open_writer(name))
    except (ValueError, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None


def _open_client(
    url: str | None,
    api_key: str | None,
    timeout: float,
    files: tuple[Path | None, ...],
    max_retries: int = _defaults.MAX_RETRIES,
) -> AsyncTurnScoreClient:
    try:
        tls = Tls(*files) if any(files) else None
        return AsyncTurnScoreClient(url, api_key=api_key, timeout_seconds=timeout, max_retries=max_retries, tls=tls)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
