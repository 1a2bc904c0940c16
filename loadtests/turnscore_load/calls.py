"""Calls: what was asked of the service and what became of it, and the sums over a stage of a test. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from turnscore_load.answers import Answer, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call. Seconds are of the event loop's clock; a call is due when its caller wanted to make it."""

    due_at: float
    sent_at: float
    done_at: float
    answer: Answer

    @property
    def took_ms(self) -> float:
        return 1000 * (self.done_at - self.due_at)

    @property
    def late_ms(self) -> float:
        """How long the sender took to send it: the sender's fault, and yet part of `took_ms`."""
        return 1000 * (self.sent_at - self.due_at)


@dataclass(frozen=True, slots=True)
class Stage:
    """The calls of one stage, which sent from `began_at` for that many seconds."""

    calls: Sequence[CallRecord]
    began_at: float
    seconds: float

    def count(self, outcome: Outcome) -> int:
        return sum(call.answer.outcome == outcome for call in self.calls)

    def goodput(self, deadline_ms: float) -> float:
        """Complete answers within their deadline that came while the stage lasted, a second."""
        end = self.began_at + self.seconds
        good = sum(
            call.answer.outcome == "answered" and call.took_ms <= deadline_ms and call.done_at <= end
            for call in self.calls
        )
        return good / self.seconds

    def took_ms(self, percent: int, *outcomes: Outcome) -> float:
        """That percentile of the times of the calls with one of those outcomes; 0 where there were none."""
        return percentile((call.took_ms for call in self.calls if call.answer.outcome in outcomes), percent)


def percentile(values: Iterable[float], percent: int) -> float:
    """By linear interpolation; 0 of no values."""
    listed = list(values)
    if len(listed) < 2:
        return listed[0] if listed else 0.0
    return quantiles(listed, n=100, method="inclusive")[percent - 1]
