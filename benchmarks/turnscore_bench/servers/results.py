"""Results: what was measured, medians over the rounds, and ratios. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

BARE = "bare"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One contender in one round, with one mix of lengths and one number of clients."""

    contender: str
    mix: str
    clients: int
    turns: int
    """Turns answered."""
    wall_seconds: float
    cpu_seconds: float
    """Of the server's process tree."""
    client_cpu_seconds: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    refused: int = 0
    """Requests that were refused and came again."""
    failed: int = 0
    """Requests, or items of a batch, answered with another error."""
    first_error: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Medians over the rounds."""

    cpu_ms: float
    """CPU milliseconds per turn, which are CPU seconds per 1,000 turns."""
    wall_ms: float
    p50_ms: float
    p99_ms: float
    client_share: float
    """The load generator's part of all CPU seconds."""
    refused: float
    failed: float

    @property
    def turns_per_second(self) -> float:
        return 1000 / self.wall_ms


@dataclass(kw_only=True)
class Results:
    """Everything one run measured, and what it could not."""

    conditions: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """The contenders by key, in the order of the tables."""
    measurements: list[Measurement] = field(default_factory=list)
    bare_single_p50_ms: dict[str, list[float]] = field(default_factory=dict)
    """Of a batch of one, by mix, a number per round."""
    not_run: dict[str, str] = field(default_factory=dict)
    """What could not be run, with the reason."""

    def mixes(self) -> list[str]:
        """The mixes measured, in order."""
        return list(dict.fromkeys(each.mix for each in self.measurements))

    def rounds(self) -> int:
        """How many rounds were measured, of the mix that was measured most often."""
        return max(Counter(each.mix for each in self.measurements if each.contender == BARE).values(), default=0)

    def clients(self) -> list[int]:
        """The numbers of clients measured, in order."""
        return sorted({each.clients for each in self.measurements if each.contender != BARE})

    def cell(self, contender: str, mix: str, clients: int = 0) -> Cell | None:
        """The medians of one contender in one condition; None where it was not measured. Bare has 0 clients."""
        found = [
            each
            for each in self.measurements
            if (each.contender, each.mix, each.clients) == (contender, mix, clients) and each.turns
        ]
        return _medians(found) if found else None

    def served_over_bare(self, contender: str, mix: str, clients: int) -> float | None:
        """CPU seconds per turn, over those of the bare runtime in ideal batches."""
        served, bare = self.cell(contender, mix, clients), self.cell(BARE, mix)
        return served.cpu_ms / bare.cpu_ms if served and bare else None

    def throughput_over(self, contender: str, other: str, mix: str, clients: int) -> float | None:
        """Turns a second, over another contender's."""
        mine, theirs = self.cell(contender, mix, clients), self.cell(other, mix, clients)
        return theirs.wall_ms / mine.wall_ms if mine and theirs else None

    def latency_above_bare(self, contender: str, mix: str) -> float | None:
        """Milliseconds that the median answer to one client takes longer than the bare runtime's batch of one."""
        served, bare = self.cell(contender, mix, 1), self.bare_single_p50_ms.get(mix)
        return served.p50_ms - median(bare) if served and bare else None


def _medians(found: Sequence[Measurement]) -> Cell:
    return Cell(
        cpu_ms=median(1000 * each.cpu_seconds / each.turns for each in found),
        wall_ms=median(1000 * each.wall_seconds / each.turns for each in found),
        p50_ms=median(each.p50_ms for each in found),
        p99_ms=median(each.p99_ms for each in found),
        client_share=median(
            each.client_cpu_seconds / max(each.client_cpu_seconds + each.cpu_seconds, 1e-9) for each in found
        ),
        refused=median(each.refused for each in found),
        failed=median(each.failed for each in found),
    )
