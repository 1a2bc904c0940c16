"""Report: what a run measured, by kind of user, out of Locust's statistics; and its table. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnscore_load.answers import Outcome
from turnscore_load.markdown import table


class Entry(Protocol):
    """The part of Locust's StatsEntry that is read."""

    name: str
    num_requests: int

    def get_response_time_percentile(self, percent: float) -> int:
        """Milliseconds that this share of the calls took at most."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of the calls of one kind of user. The times are those of the answered ones, in milliseconds."""

    kind: str
    seconds: float
    answered: int = 0
    refused: int = 0
    expired: int = 0
    failed: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def calls(self) -> int:
        return self.answered + self.refused + self.expired + self.failed

    @property
    def answered_per_second(self) -> float:
        return self.answered / self.seconds

    def share(self, count: int) -> float:
        """That many calls as a share of all; 0 where there were none."""
        return count / self.calls if self.calls else 0.0


def statistics_name(kind: str, outcome: Outcome) -> str:
    """The name under which Locust counts such a call: a refusal stands beside the answers, not among them."""
    return kind if outcome == "answered" else f"{kind} {outcome}"


def measure(entries: Iterable[Entry], kinds: Sequence[str], seconds: float) -> list[Measured]:
    """What Locust's statistics say of each kind, in that order."""
    found: dict[str, dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        kind, _, outcome = entry.name.partition(" ")
        found[kind][outcome or "answered"] = entry
    return [_measured(kind, found[kind], seconds) for kind in kinds]


def _measured(kind: str, by_outcome: dict[str, Entry], seconds: float) -> Measured:
    counts = {outcome: entry.num_requests for outcome, entry in by_outcome.items()}
    answered = by_outcome.get("answered")
    p50, p95, p99 = (
        (answered.get_response_time_percentile(each) for each in (0.5, 0.95, 0.99)) if answered else (0, 0, 0)
    )
    return Measured(kind=kind, seconds=seconds, **counts, p50_ms=p50, p95_ms=p95, p99_ms=p99)


def report(measured: Sequence[Measured], broken: Sequence[str]) -> str:
    """The run as Markdown, what was broken below it."""
    rows = []
    for each in measured:
        counts = [each.answered, each.refused, each.expired, each.failed]
        times = [f"{ms:.0f}" if each.answered else "-" for ms in (each.p50_ms, each.p95_ms, each.p99_ms)]
        rows.append([each.kind, *map(str, counts), f"{each.answered_per_second:.2f}", *times])
    head = ["user", "answered", "refused", "expired", "failed", "answered/s", "p50 ms", "p95 ms", "p99 ms"]
    verdict = [f"- BROKEN {sentence}" for sentence in broken] or ["Every budget was kept."]
    return "\n".join([table(head, rows, texts=1), "", *verdict])
