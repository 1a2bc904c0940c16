"""Progress on stderr: a bar on a terminal, else a line every ten seconds; stdout is for results only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from turnscore_client import _defaults
from turnscore_client._clock import Clock
from turnscore_client._files.lines import Line, is_file


class Shown(Protocol):
    """What shows how far a run has come."""

    def note(self, line: Line, failed: int) -> None:
        """One more line is done; so many failed so far."""


@contextmanager
def show_progress(total_bytes: int | None, output: Path, clock: Clock) -> Iterator[Shown]:
    """A bar over the bytes read, as how many lines there are is not known before the end; or lines, for a log."""
    console = Console(stderr=True)
    if not console.is_terminal or (not is_file(output) and sys.stdout.isatty()):
        yield _Lines(total_bytes, clock)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]} lines"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as progress:
        yield _Bar(progress, total_bytes)


class _Bar:
    def __init__(self, progress: Progress, total_bytes: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("scoring", total=total_bytes, lines=0)
        self._lines = 0

    def note(self, line: Line, failed: int) -> None:
        self._lines += 1
        self._progress.update(self._task, completed=line.position_bytes, lines=self._lines)


class _Lines:
    def __init__(self, total_bytes: int | None, clock: Clock) -> None:
        self._total_bytes = total_bytes
        self._clock = clock
        self._began_at = self._told_at = clock.now()
        self._lines = 0

    def note(self, line: Line, failed: int) -> None:
        self._lines += 1
        now = self._clock.now()
        if now - self._told_at < _defaults.PROGRESS_SECONDS:
            return
        self._told_at = now
        parts = [f"line {line.number}", f"{self._lines / (now - self._began_at):.1f} lines per second"]
        if self._total_bytes and line.position_bytes:
            parts.append(f"{100 * line.position_bytes / self._total_bytes:.0f} %")
        if failed:
            parts.append(f"{failed} failed")
        typer.echo("turnscore: " + ", ".join(parts), err=True)
