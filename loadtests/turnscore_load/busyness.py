"""Busyness: whether the machine had other work before and during a run, so that its times say little."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

BUSY_LOAD_PER_CPU = 0.5
"""Load average before the first request. Chosen: a service that has just started and waits leaves less."""
BUSY_STEAL_SHARE = 0.05
"""Of the CPUs' time, taken by other machines on the same host. Chosen."""


@dataclass(frozen=True, slots=True)
class Busyness:
    """What the machine did beside the run."""

    load_before: float
    cpus: int
    steal_share: float

    def remark(self, broken: Sequence[str]) -> str:
        """What a person needs to know of it; empty where no budget was broken, or the machine was the run's own."""
        is_busy = self.load_before > BUSY_LOAD_PER_CPU * self.cpus or self.steal_share > BUSY_STEAL_SHARE
        if not (broken and is_busy):
            return ""
        return (
            f"The machine was busy with other work: load average {self.load_before:.1f} on {self.cpus} CPUs before the "
            f"run, {100 * self.steal_share:.0f} % of the CPUs' time taken by other machines during it. "
            "Its times say little; run again when it is quiet.\n"
        )


class BusynessWatch:
    """Looks at the machine when it is made and when it is read."""

    def __init__(self) -> None:
        self._cpus = psutil.cpu_count() or 1
        self._load_before = os.getloadavg()[0]
        self._started_at = time.monotonic()
        self._steal_before = _steal_seconds()

    def read(self) -> Busyness:
        """What it did since."""
        seconds = max(time.monotonic() - self._started_at, 1e-9)
        return Busyness(self._load_before, self._cpus, (_steal_seconds() - self._steal_before) / seconds / self._cpus)


def _steal_seconds() -> float:
    """Of all CPUs; 0 where the system does not say."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
