"""Memory, file handles and threads of a service's processes, read at intervals, and whether they grew.

The median of a window is compared with another's, so that single moments do not count. What may differ is what differs
within the first window anyway (three times the median deviation from its median: about two standard deviations), and at
least a small allowance for each figure.
"""

import csv
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from turnscore_load.machine import ScenarioError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """The sums over all processes of the service at one moment."""

    seconds: float  # since the sampling began
    rss_bytes: int
    handles: int
    threads: int


class ProcessesChangedError(ScenarioError):
    """A process of the service ended or was replaced while it was watched."""


class Sampler:
    """Samples while the block runs: `with Sampler(processes, 1.0) as sampler: ...; sampler.samples`."""

    def __init__(self, processes: Sequence[psutil.Process], interval_seconds: float) -> None:
        if not processes:
            raise ProcessesChangedError("there is no process of the service to watch")
        self.samples: list[ProcessSample] = []
        self._processes = processes
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._lost: psutil.Error | None = None
        self._started_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._started_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raises ProcessesChangedError where a process ended."""
        if self._lost is not None:
            raise ProcessesChangedError(f"a process of the service ended while it was watched: {self._lost}")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.samples.append(self._sample())
            except psutil.Error as error:
                self._lost = error
                return
            self._stop.wait(self._interval_seconds)

    def _sample(self) -> ProcessSample:
        rss, handles, threads = 0, 0, 0
        for process in self._processes:
            with process.oneshot():
                rss += process.memory_info().rss
                handles += process.num_fds()
                threads += process.num_threads()
        seconds = time.monotonic() - self._started_at
        return ProcessSample(seconds=seconds, rss_bytes=rss, handles=handles, threads=threads)


def write_csv(samples: Sequence[ProcessSample], file: Path) -> None:
    """One line a sample, the fields' names above."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as output:
        writer = csv.writer(output)
        writer.writerow(field.name for field in fields(ProcessSample))
        writer.writerows(astuple(sample) for sample in samples)


_NOISE_DEVIATIONS = 3


_MIB = 1024 * 1024
# What is compared: its name, its unit, how to read it off a sample, and the least growth that counts, as a share of the
# first window's median and in units.
FIGURES: tuple[tuple[str, str, Callable[[ProcessSample], float], float, float], ...] = (
    # Memory is a high-water mark: the longest dialogues come rarely, and each longest one yet may raise it a little.
    ("memory", " MiB", lambda sample: sample.rss_bytes / _MIB, 0.02, 0.0),
    # A connection that is being replaced is counted twice for a moment.
    ("file handles", "", lambda sample: sample.handles, 0.0, 1.0),
    ("threads", "", lambda sample: sample.threads, 0.0, 0.0),
)


class Growth(NamedTuple):
    """One figure in the first and in the last window, and how much more it may be."""

    name: str
    unit: str
    first: float
    last: float
    allowed: float

    @property
    def is_kept(self) -> bool:
        return self.last - self.first <= self.allowed

    def __str__(self) -> str:
        return f"{self.first:.1f} -> {self.last:.1f}{self.unit}, allowed {self.allowed:.1f}{self.unit} more"


Window = tuple[float, float]  # from and to, in seconds since the sampling began


def growths(samples: Sequence[ProcessSample], first: Window, last: Window) -> list[Growth]:
    """Every figure's growth. Raises ValueError where a window holds fewer than three samples."""
    found = []
    for name, unit, read, share, amount in FIGURES:
        before, after = ([read(sample) for sample in _within(samples, window)] for window in (first, last))
        middle = median(before)
        noise = _NOISE_DEVIATIONS * median(abs(value - middle) for value in before)
        found.append(Growth(name, unit, middle, median(after), max(noise, share * middle, amount)))
    return found


def soak_windows(seconds: float) -> tuple[Window, Window]:
    """First and last window of a soak: what follows the first two minutes, and the end, each a fifth of the rest.

    Of a run shorter than six minutes a third stands for the two minutes.
    """
    warm_up = min(120.0, seconds / 3)
    length = (seconds - warm_up) / 5
    return (warm_up, warm_up + length), (seconds - length, seconds)


def _within(samples: Sequence[ProcessSample], window: Window) -> list[ProcessSample]:
    found = [sample for sample in samples if window[0] <= sample.seconds < window[1]]
    if len(found) < 3:
        raise ValueError(f"{len(found)} samples from second {window[0]:.0f} to {window[1]:.0f}: too few to compare")
    return found
