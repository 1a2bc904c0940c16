"""The pace: how many lines are in flight, and when the next may begin. Knows no line.

It begins with a few, doubles while all goes well, halves at a refusal, and from then on adds one for each round without
one. A line that was refused waits until the moment that the service names, and so do all where nothing else was
answered. While nobody is there, one line asks, after growing delays.
"""

import asyncio

from turnscore_client import _defaults
from turnscore_client._clock import Clock


class Pace:
    """Belongs to one event loop."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        """Lines in flight at the fastest pace."""
        self._clock = clock
        self._limit = float(min(most, _defaults.CONCURRENCY))
        self._doubles = True
        self._in_flight = 0
        self._rounds = 0
        self._failures = 0
        self._opens_at = clock.now()
        self._changed = asyncio.Event()
        self._stopped_by: Exception | None = None

    @property
    def limit(self) -> int:
        """Lines that may be in flight."""
        return int(self._limit)

    async def begin(self) -> int:
        """Returns when a line may be sent; the number of the round it is sent in. Raises what `stop` was given."""
        while True:
            if self._stopped_by is not None:
                raise self._stopped_by
            wait = self._opens_at - self._clock.now()
            if wait > 0:
                await self._clock.sleep_async(wait)
            elif self._in_flight < self.limit:
                self._in_flight += 1
                return self._rounds
            else:
                self._changed.clear()
                await self._changed.wait()

    def end(self) -> None:
        """A line is in flight no more."""
        self._in_flight -= 1
        self._changed.set()

    def stop(self, error: Exception) -> None:
        """Lets no line begin any more."""
        self._stopped_by = error
        self._changed.set()

    def answered(self) -> None:
        """The service took a line."""
        self._failures = 0
        step = 1.0 if self._doubles else 1.0 / self._limit
        self._limit = min(float(self.most), self._limit + step)

    def refused(self, begun_in: int, after_ms: int | None, *, is_gone: bool) -> float:
        """The service refused a line, or nobody answered: the seconds in which this line is not to be sent again.

        What was sent before the last refusal counts with it. The other lines go on, fewer of them, unless all that was
        sent since an answer was refused.
        """
        if begun_in == self._rounds:
            self._rounds += 1
            self._failures += 1
            self._doubles = False
            self._limit = 1.0 if is_gone else max(1.0, self._limit / 2)
        doublings = min(max(0, self._failures - 1), 30)  # more would only overflow
        delay = min(_defaults.FIRST_DELAY_SECONDS * 2.0**doublings, _defaults.LONGEST_PAUSE_SECONDS)
        seconds = delay if after_ms is None else after_ms / 1000
        if is_gone or self._failures > 1:
            self._opens_at = max(self._opens_at, self._clock.now() + seconds)
        return seconds
