"""The work behind the `turnscore` command, with a progress bar and a summary on stderr; stdout is for results only."""

import asyncio
import json
import sys
import time
import zlib
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from turnscore_wire import ModelsReply

from turnscore_client._async.client import AsyncTurnScoreClient
from turnscore_client._errors import TurnScoreError
from turnscore_client._file_scoring import Outcome, score_lines
from turnscore_client._line_files import open_output, read_lines, size_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FileJob:
    """A file to score, and how."""

    file: Path
    output: Path
    scorers: list[str] | None
    concurrency: int


@dataclass
class Tally:
    """How many lines there were, how many failed, and the first failure."""

    lines: int = 0
    failed: int = 0
    first_failure: str = ""

    def add(self, outcome: Outcome) -> None:
        """Counts one line."""
        self.lines += 1
        if outcome.error is not None:
            self.failed += 1
            self.first_failure = self.first_failure or f"line {outcome.line.number}: {outcome.error}"

    def summary(self, seconds: float) -> str:
        """One sentence for a person."""
        sentence = f"scored {self.lines - self.failed} of {self.lines} lines in {seconds:.1f} s"
        return f"{sentence}; {self.failed} failed, the first: {self.first_failure}" if self.failed else sentence


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


async def score_file(client: AsyncTurnScoreClient, job: FileJob) -> Tally:
    """Scores the file and says on stderr how it went. An unreachable service is found before the output is opened."""
    started_at = time.monotonic()
    async with client:
        await client.models()
        try:
            output = open_output(job.output)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--output") from None
        with output as destination:
            tally = await _score_lines(client, job, destination)
            destination.flush()
    typer.echo(tally.summary(time.monotonic() - started_at), err=True)
    return tally


async def _score_lines(client: AsyncTurnScoreClient, job: FileJob, destination: TextIO) -> Tally:
    tally = Tally()
    with _progress(destination) as progress:
        bar = progress.add_task("scoring", total=size_of(job.file), lines=0)
        outcomes = score_lines(client, read_lines(job.file), job.scorers, job.concurrency)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                destination.write(json.dumps(outcome.written, allow_nan=False) + "\n")
                tally.add(outcome)
                progress.update(bar, completed=outcome.line.position_bytes, lines=tally.lines)
    return tally


def _progress(destination: TextIO) -> Progress:
    """A bar over the bytes read: how many lines there are is not known before the end."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]} lines"),
        TimeRemainingColumn(),
    )
    is_hidden = not console.is_terminal or (destination is sys.stdout and sys.stdout.isatty())
    return Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False, disable=is_hidden)
