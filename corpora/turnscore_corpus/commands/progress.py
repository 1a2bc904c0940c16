"""Progress on stderr: how far a run is, how fast, how long it will take, and what was set aside."""

import sys
import time
from collections.abc import Callable

import typer

from turnscore_corpus.blocks import BlockSummary

PAUSE_SECONDS = 10.0
"""Seconds between two lines of a log. Chosen: as Ray Data and `turnscore score` do."""
TERMINAL_SECONDS = 1.0

Clock = Callable[[], float]
Tell = Callable[[str], object]


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


class Progress:
    def __init__(self, rows: int, rows_done: int, *, clock: Clock = time.monotonic, tell: Tell = _to_stderr) -> None:
        """`rows` counts all rows, `rows_done` those of earlier runs."""
        self._rows, self._rows_before = rows, rows_done
        self._clock, self._tell = clock, tell
        self._began_at = self._told_at = clock()
        self._pause = TERMINAL_SECONDS if sys.stderr.isatty() else PAUSE_SECONDS
        self.rows = self.dialogues = self.turns = self.set_aside = self.computed = 0

    def note(self, block: BlockSummary) -> None:
        """Counts a block that was committed."""
        self.rows += block.rows
        self.dialogues += block.dialogues
        self.turns += block.turns
        self.set_aside += block.set_aside
        self.computed += block.turns_computed
        if self._clock() - self._told_at >= self._pause:
            self._told_at = self._clock()
            self._tell(self.line())

    @property
    def seconds(self) -> float:
        return max(self._clock() - self._began_at, 1e-9)

    def line(self) -> str:
        """One line on how far the run is."""
        done = self._rows_before + self.rows
        told = [f"{done:,} of {self._rows:,} rows ({100 * done / max(self._rows, 1):.0f} %)"]
        told.append(f"{self.turns / self.seconds:,.0f} turns per second")
        if self.rows:
            told.append(f"{_span((self._rows - done) * self.seconds / self.rows)} left")
        if self.set_aside:
            told.append(f"{self.set_aside:,} set aside")
        return "turnscore: " + ", ".join(told)


def _span(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
