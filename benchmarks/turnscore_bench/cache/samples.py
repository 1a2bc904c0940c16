"""Samples: what one run measured; medians, and ratios of what was measured in the same round. Pure."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from turnscore_bench.cache.ways import Question

Measure = Callable[["Sample"], float]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One way in one round."""

    round: int
    way: str
    question: Question
    turns: int
    wall_seconds: float
    cpu_seconds: float
    """Of the service's process tree."""
    redis_cpu_seconds: float
    p50_ms: float
    p99_ms: float
    failed: int = 0

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per turn."""
        return 1000 * self.cpu_seconds / self.turns

    @property
    def wall_ms(self) -> float:
        """Milliseconds per turn."""
        return 1000 * self.wall_seconds / self.turns

    @property
    def redis_ms(self) -> float:
        """CPU milliseconds per turn, of the Redis itself."""
        return 1000 * self.redis_cpu_seconds / self.turns


@dataclass(frozen=True, kw_only=True)
class FaultSample:
    """Latency under load in one state of the Redis, in one round."""

    round: int
    state: str
    requests: int
    p50_ms: float
    p99_ms: float
    failed: int = 0
    breakers: dict[str, float] = field(default_factory=dict)
    """Their states afterwards by operation: 0 closed, 2 open; 1 while being probed."""


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """What two processes computed of turns of which each was sent to both."""

    traffic: str
    turns: int
    distinct: int
    computed: int
    cpu_seconds: float

    @property
    def share(self) -> float:
        """Of the repeats, those that were computed once more."""
        return (self.computed - self.distinct) / max(self.turns - self.distinct, 1)


@dataclass(kw_only=True)
class Findings:
    """Everything one run measured."""

    captions: dict[str, str] = field(default_factory=dict)
    """Where, when and with what each part was measured."""
    samples: list[Sample] = field(default_factory=list)
    faults: list[FaultSample] = field(default_factory=list)
    duplicates: list[Duplicates] = field(default_factory=list)
    lock_us: dict[int, float] = field(default_factory=dict)
    """CPU microseconds for one lock, by the number of callers at once."""

    def questions(self) -> list[Question]:
        """What was asked, in order."""
        return list(dict.fromkeys(each.question for each in self.samples))

    def of(self, way: str, question: Question) -> list[Sample]:
        """The samples of one way, by round."""
        return [each for each in self.samples if (each.way, each.question) == (way, question)]

    def middle(self, way: str, question: Question, measure: Measure) -> float | None:
        """The median over the rounds; None where it was not measured."""
        found = self.of(way, question)
        return median(measure(each) for each in found) if found else None

    def ratio(self, way: str, base: str, question: Question, measure: Measure) -> float | None:
        """The median of the rounds' ratios: both sides of one were measured one soon after the other."""
        pairs = list(zip(self.of(way, question), self.of(base, question), strict=False))
        return median(measure(one) / measure(other) for one, other in pairs) if pairs else None

    def states(self) -> list[str]:
        """The states of the Redis, in order."""
        return list(dict.fromkeys(each.state for each in self.faults))

    def p99s(self, state: str) -> list[float]:
        """Its 99th percentiles, by round."""
        return [each.p99_ms for each in self.faults if each.state == state]

    def healthy_p99s(self) -> list[float]:
        """Those of every round in which the Redis was healthy, for the first time or again."""
        return [each.p99_ms for each in self.faults if each.state.startswith("healthy")]

    def failures(self) -> int:
        """Requests that were answered with anything but scores."""
        return sum(each.failed for each in self.samples) + sum(each.failed for each in self.faults)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return asdict(self)


def read_findings(file: Path) -> Findings:
    """What an earlier run wrote; nothing where there was none."""
    if not file.is_file():
        return Findings()
    stored = json.loads(file.read_text(encoding="utf-8"))
    return Findings(
        captions=stored["captions"],
        samples=[Sample(**{**each, "question": Question(**each["question"])}) for each in stored["samples"]],
        faults=[FaultSample(**each) for each in stored["faults"]],
        duplicates=[Duplicates(**each) for each in stored["duplicates"]],
        lock_us={int(callers): us for callers, us in stored["lock_us"].items()},
    )


def percentiles(latencies_ms: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    ordered = sorted(latencies_ms)
    return median(ordered), ordered[int(0.99 * len(ordered))]
