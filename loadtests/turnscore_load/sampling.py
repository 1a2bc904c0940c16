"""Sampling: memory, file handles and threads of the service's processes, read at intervals in a thread of its own."""

import csv
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The sums over all processes of the service at one moment."""

    seconds: float
    """Since the sampling began."""
    rss_bytes: int
    handles: int
    threads: int
    cpu_seconds: float
    machine_cpu_seconds: float
    """Of everything that runs on the machine."""


class ProcessesChangedError(Exception):
    """A process of the service ended or was replaced while it was watched."""


class Sampler:
    """Samples while the block runs: `with Sampler(processes, 1.0) as sampler: ...; sampler.samples`."""

    def __init__(self, processes: Sequence[psutil.Process], interval_seconds: float) -> None:
        if not processes:
            raise ProcessesChangedError("there is no process of the service to watch")
        self.samples: list[Sample] = []
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

    def seconds(self) -> float:
        """Since the sampling began, as the samples count it."""
        return time.monotonic() - self._started_at

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.samples.append(self._sample())
            except psutil.Error as error:
                self._lost = error
                return
            self._stop.wait(self._interval_seconds)

    def _sample(self) -> Sample:
        rss, handles, threads, cpu = 0, 0, 0, 0.0
        for process in self._processes:
            with process.oneshot():
                rss += process.memory_info().rss
                handles += process.num_fds()
                threads += process.num_threads()
                times = process.cpu_times()
                cpu += times.user + times.system
        machine = psutil.cpu_times()
        busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
        return Sample(
            seconds=self.seconds(),
            rss_bytes=rss,
            handles=handles,
            threads=threads,
            cpu_seconds=cpu,
            machine_cpu_seconds=busy,
        )


def write_csv(samples: Sequence[Sample], file: Path) -> None:
    """One line a sample, the fields' names above."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as output:
        writer = csv.writer(output)
        writer.writerow(field.name for field in fields(Sample))
        writer.writerows(astuple(sample) for sample in samples)
