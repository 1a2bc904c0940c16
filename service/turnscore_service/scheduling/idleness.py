"""Idleness: whether work that nobody waits for may begin. Measures nothing: it reads what callers have in flight."""

from collections.abc import Callable, Sequence
from typing import Protocol

KEPT_CPUS = 2
"""CPUs that work for nobody leaves free, of those that callers' batches do not use: one for the next batch to come and
one for the event loop. Chosen."""


class Lanes(Protocol):
    """A batcher, as far as this asks."""

    @property
    def waiting(self) -> int:
        """Packs that wait for a lane."""

    @property
    def running(self) -> int:
        """Batches in the runtime."""


class Idleness:
    """Of one process with so many CPUs. Belongs to one event loop."""

    def __init__(self, lanes: Sequence[Lanes], has_work: Callable[[], bool], cpus: int) -> None:
        """`has_work` says whether any turn is admitted and not yet answered."""
        self._lanes = lanes
        self._has_work = has_work
        self._spare = cpus - KEPT_CPUS

    def is_idle(self) -> bool:
        """Whether nothing is in flight; where there are CPUs to spare, whether nothing waits and one is unused."""
        if not self._has_work():
            return True
        if any(each.waiting for each in self._lanes):
            return False
        return sum(each.running for each in self._lanes) < self._spare
