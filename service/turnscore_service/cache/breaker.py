"""The circuit breaker: whether a failing Redis is left alone. Knows no clock and no network.

Closed, calls go through and their ends are recorded. Open, none does, so that no caller waits for an answer that will
not come. Half open, one probe is under way in the background, and no caller pays for it. Libraries for this probe with
the callers' own calls, with all that arrive at once.
"""

import asyncio
import logging
from collections import deque
from typing import Literal

from turnscore_service import metrics
from turnscore_service.settings.cache import CacheSettings

State = Literal["closed", "half_open", "open"]

_STATE_NUMBERS: dict[State, int] = {"closed": 0, "half_open": 1, "open": 2}
_LOGGER = logging.getLogger("turnscore.cache")


class Breaker:
    """The breaker of one kind of operation. Begins open: the first probe closes it. Belongs to one event loop."""

    def __init__(self, operation: str, settings: CacheSettings) -> None:
        self.operation = operation
        self._settings = settings
        self._recent: deque[bool] = deque(maxlen=settings.breaker_window)
        self._openings = 0
        self._opened = asyncio.Event()
        self._state: State = "open"
        self._become("open")

    @property
    def is_closed(self) -> bool:
        """Whether calls may go through."""
        return self._state == "closed"

    @property
    def state(self) -> State:
        return self._state

    def record(self, *, has_failed: bool, cause: str = "") -> None:
        """Notes how a call ended; what was begun before the breaker opened no longer counts."""
        if not self.is_closed:
            return
        self._recent.append(has_failed)
        if sum(self._recent) >= self._settings.breaker_failures:
            self._openings += 1
            self._warn(cause)
            self._become("open")
        elif not has_failed and len(self._recent) == self._recent.maxlen:
            self._openings = 0

    def trip(self) -> None:
        """Opens it where it is closed: a probe has to pass before it is used again."""
        if self.is_closed:
            self._become("open")

    async def wait_until_open(self) -> None:
        """Returns at once where it is open."""
        await self._opened.wait()

    def pause_seconds(self) -> float:
        """How long to leave the Redis alone: doubled each time it opens again without having worked in between."""
        if not self._openings:
            return 0.0
        doubled = self._settings.breaker_probe_seconds * 2.0 ** min(self._openings - 1, 30)
        return min(doubled, self._settings.breaker_max_probe_seconds)

    def begin_probe(self) -> None:
        """Half opens it."""
        self._become("half_open")

    def end_probe(self, *, has_failed: bool, cause: str = "") -> None:
        """Closes it, or opens it again for longer."""
        if has_failed:
            if not self._openings:
                self._warn(cause)
            self._openings += 1
            self._become("open")
            return
        _LOGGER.info("the cache is in use", extra={"operation": self.operation})
        self._recent.clear()
        self._become("closed")

    def _warn(self, cause: str) -> None:
        _LOGGER.warning("the cache is left alone: %s", cause, extra={"operation": self.operation})

    def _become(self, state: State) -> None:
        self._state = state
        if state == "open":
            self._opened.set()
        else:
            self._opened.clear()
        metrics.CACHE_BREAKER.labels(self.operation).set(_STATE_NUMBERS[state])
