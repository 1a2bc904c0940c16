"""Turn budget: how many turns per second one key may ask for. Refuses at once, never waits."""

import math
import time
from collections.abc import Callable

from turnscore_core.errors import OverloadedError


class TurnBudget:
    """A token bucket that may be overdrawn once: a batch larger than the bucket is taken, and paid off afterwards.

    Written here because the libraries for this either wait until there is room (aiolimiter) or refuse for good what is
    larger than the bucket (limits, pyrate-limiter).
    """

    def __init__(self, turns_per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = turns_per_second
        self._burst = burst
        self._clock = clock
        self._level = float(burst)
        self._filled_at = clock()

    def require(self) -> None:
        """Takes nothing. Raises OverloadedError where there is no room for one turn, with the time until there is."""
        self._fill()
        if self._level < 1:
            raise OverloadedError(
                f"this key may ask for {self._rate:g} turns per second",
                retry_after_ms=math.ceil(1000 * (1 - self._level) / self._rate) + 1,
            )

    def take(self, turns: int) -> None:
        """Takes so many turns, whatever there is: a caller that must not overdraw asks `require` in the same moment."""
        self._fill()
        self._level -= turns

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
