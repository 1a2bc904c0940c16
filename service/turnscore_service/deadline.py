"""Deadline: the time left for a request, passed down explicitly. Reads a monotonic clock, never waits."""

import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock after which an answer is worthless."""

    expires_at: float

    @classmethod
    def after_ms(cls, milliseconds: float) -> "Deadline":
        """A deadline that many milliseconds from this moment."""
        return cls(time.monotonic() + milliseconds / 1000)

    def remaining_seconds(self) -> float:
        """Seconds left; negative once it has passed."""
        return self.expires_at - time.monotonic()


def latest(deadlines: Iterable[Deadline]) -> Deadline:
    """The one that passes last."""
    return max(deadlines, key=lambda each: each.expires_at)
