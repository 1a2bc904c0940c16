"""The work behind the `turnscore` command, with its progress and summary on stderr; stdout is for results only."""

import asyncio
import signal
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer
from turnscore_wire import ModelsReply

from turnscore_client import _defaults
from turnscore_client._async.client import AsyncTurnScoreClient
from turnscore_client._clock import Clock, SystemClock
from turnscore_client._errors import TurnScoreError
from turnscore_client._files.lines import Line, read_lines, size_of
from turnscore_client._files.output import NotOurOutputError, Row, RowOutput, open_rows
from turnscore_client._files.pace import Pace
from turnscore_client._files.progress import show_progress
from turnscore_client._files.rows import is_row_of
from turnscore_client._files.scoring import Patient, StoppedError, UndeliveredError, score_lines
from turnscore_client._files.summary import Summary

T = TypeVar("T")
Deliver = Callable[[Row], Awaitable[None]]

STOPPED = 3
"""The exit code of a run that the same command resumes."""


@dataclass(frozen=True, kw_only=True)
class FileJob:
    """A file to score, and how."""

    file: Path
    output: Path
    scorers: list[str] | None
    concurrency: int
    timeout_seconds: float = _defaults.TIMEOUT_SECONDS
    wait_seconds: float = _defaults.WAIT_SECONDS
    clock: Clock | None = None
    deliver: Deliver | None = None
    """Gets every row in order before it is written. What the output holds was delivered; after a crash the rows that
    were in flight are delivered again, so let the receiver know a row by its `line`. UndeliveredError stops the run."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns; a failure of the service or of a file is one line on stderr and exit code 1."""
    try:
        return asyncio.run(work)
    except BrokenPipeError:
        raise  # the reader of our output left; the command line framework ends quietly
    except (TurnScoreError, OSError, EOFError, zlib.error) as error:
        typer.echo(f"turnscore: {error}", err=True)
        raise typer.Exit(1) from None


async def fetch_models(client: AsyncTurnScoreClient) -> ModelsReply:
    """The service's models, on a client that is closed afterwards."""
    async with client:
        return await client.models()


async def score_file(client: AsyncTurnScoreClient, job: FileJob) -> int:
    """Scores what the output does not hold yet, and says on stderr how it went; the exit code.

    The output is locked before it is read, so that a second run cannot read what this one is about to add to. An
    unreachable service, and an output that is not this input's, are found before anything is written.
    """
    clock = job.clock or SystemClock()
    began_at = clock.now()
    summary, stopped = Summary(), None
    async with client:
        with _open(job.output) as output:
            lines = _lines_left(job, output, summary)
            if summary.rows:
                typer.echo(f"turnscore: {summary.rows} lines are in {job.output}; going on behind them", err=True)
            patient = Patient(
                pace=Pace(job.concurrency, clock),
                clock=clock,
                wait_seconds=job.wait_seconds,
                timeout_seconds=job.timeout_seconds,
                probe=lambda timeout: client.score(response="ok.", scorers=job.scorers, timeout_seconds=timeout),
            )
            try:
                with _interruptible():
                    await _score_left(client, job, lines, output, patient, summary)
            except (StoppedError, UndeliveredError) as error:
                stopped = str(error)
            except asyncio.CancelledError:
                stopped = "interrupted"
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
    typer.echo(summary.text(clock.now() - began_at), err=True)
    if stopped is not None:
        typer.echo(f"turnscore: stopped: {stopped}; repeat the command to resume", err=True)
        return STOPPED
    return summary.exit_code()


async def _score_left(
    client: AsyncTurnScoreClient,
    job: FileJob,
    lines: Iterator[Line],
    output: RowOutput,
    patient: Patient,
    summary: Summary,
) -> None:
    models = await patient.ask(lambda timeout: client.models(timeout_seconds=timeout))
    output.begin()
    with show_progress(size_of(job.file), job.output, patient.clock) as shown:
        outcomes = score_lines(client, lines, job.scorers, patient, models.limits)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if job.deliver is not None:
                    await job.deliver(outcome.row)
                output.append(outcome.row)
                summary.add(outcome.row)
                shown.note(outcome.line, summary.failed)


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


@contextmanager
def _open(path: Path) -> Iterator[RowOutput]:
    with ExitStack() as stack:
        try:
            output = stack.enter_context(open_rows(path))
        except (OSError, NotOurOutputError) as error:
            raise typer.BadParameter(f"'{path}': {error}", param_hint="--output") from None
        yield output


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
