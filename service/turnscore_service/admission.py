"""Admission: decides at once whether there is room for more work. Never waits, never queues."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnscore_service import metrics
from turnscore_service.errors import OverloadedError
from turnscore_service.settings import AdmissionSettings

_RATE_WINDOW_SECONDS = 5.0
"""How far back the drain rate looks. Chosen: long enough to smooth single batches."""
_RETRY_MS = (20, 10_000)
"""Least and greatest advice to a refused caller. Chosen."""


class Admission:
    """Room for turns and tokens in one process. Belongs to one event loop."""

    def __init__(self, settings: AdmissionSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._items = 0
        self._tokens = 0
        self._released: deque[tuple[float, int]] = deque()
        self._drained = 0

    @contextmanager
    def reserve(self, items: int, tokens: int) -> Iterator[None]:
        """Holds room for the whole request while the block runs, or raises OverloadedError before it.

        A request that finds nothing else in flight is always admitted: the limits bound what waits together.
        """
        is_full = self._items + items > self._settings.max_items or self._tokens + tokens > self._settings.max_tokens
        if self._items and is_full:
            metrics.REFUSED_ITEMS.inc(items)
            raise OverloadedError("too much work is in flight", retry_after_ms=self._retry_after_ms(tokens))
        self._change(items, tokens)
        try:
            yield
        finally:
            self._change(-items, -tokens)
            self._released.append((self._clock(), tokens))
            self._drained += tokens
            self._forget_old()

    def _change(self, items: int, tokens: int) -> None:
        self._items += items
        self._tokens += tokens
        metrics.ITEMS_IN_FLIGHT.set(self._items)
        metrics.TOKENS_IN_FLIGHT.set(self._tokens)

    def _retry_after_ms(self, tokens: int) -> int:
        """When room for `tokens` should be free, from the rate at which work left in the last seconds."""
        least, greatest = _RETRY_MS
        self._forget_old()
        if not self._drained:
            return 1000
        seconds = max(self._clock() - self._released[0][0], 0.1)
        excess = max(self._tokens + tokens - self._settings.max_tokens, tokens)
        return int(min(greatest, max(least, 1000 * excess * seconds / self._drained)))

    def _forget_old(self) -> None:
        """Keeps only what left within the window, so that the memory does not grow with the requests answered."""
        while self._released and self._released[0][0] < self._clock() - _RATE_WINDOW_SECONDS:
            self._drained -= self._released.popleft()[1]
