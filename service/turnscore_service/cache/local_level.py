"""The level in the process: entries as bytes, the least recently used thrown out first, each with a time to live."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TLRUCache

from turnscore_service import metrics

ENTRY_OVERHEAD_BYTES = 560
"""What an entry costs beside its own bytes, its key included. Measured, resident, of 50,000 entries: 540 to 555."""


@dataclass(frozen=True, slots=True)
class _Held:
    entry: bytes
    expires_at: float


class LocalLevel:
    """At most `max_bytes` of entries. Belongs to one event loop."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._held: TLRUCache[str, _Held] = TLRUCache(max_bytes, _end_of, clock, _size_of)

    def get(self, key: str) -> bytes | None:
        """The entry, or None."""
        held = self._held.get(key)
        return None if held is None else held.entry

    def put(self, key: str, entry: bytes, seconds: float) -> None:
        """Holds the entry that long, unless it is larger than everything that may be held."""
        if len(entry) + ENTRY_OVERHEAD_BYTES <= self._max_bytes:
            self._held[key] = _Held(entry, self._clock() + seconds)
            metrics.CACHE_LOCAL_BYTES.set(self._held.currsize)


def _end_of(_: str, held: _Held, __: float) -> float:
    return held.expires_at


def _size_of(held: _Held) -> int:
    return len(held.entry) + ENTRY_OVERHEAD_BYTES
