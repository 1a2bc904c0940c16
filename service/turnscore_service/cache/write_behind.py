"""Write-behind: entries are written together, after their answers; the number that waits is bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from turnscore_service import metrics

_MAX_ENTRIES = 256
"""In one round trip: some 150 kB of FED's entries. Chosen."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """An entry to be written, and for how long."""

    entry: bytes
    ttl_ms: int


Write = Callable[[Mapping[str, PendingWrite]], Awaitable[None]]


class WriteBehind:
    """The writes of one process. Belongs to one event loop."""

    def __init__(self, write: Write, max_pending: int, delay_seconds: float) -> None:
        """`write` must not raise; one runs at a time."""
        self._write = write
        self._max_pending = max_pending
        self._delay_seconds = delay_seconds
        self._pending: dict[str, PendingWrite] = {}
        self._is_due = asyncio.Event()

    def put(self, key: str, entry: bytes, ttl_ms: int) -> None:
        """Takes the entry, in place of one of that key that still waits; drops it where too many wait."""
        if len(self._pending) >= self._max_pending and key not in self._pending:
            metrics.CACHE_DROPPED_WRITES.labels("full").inc()
            return
        self._pending[key] = PendingWrite(entry, ttl_ms)
        self._is_due.set()

    async def run(self) -> None:
        """Writes entries as they are put, until it is cancelled."""
        while True:
            await self._is_due.wait()
            await asyncio.sleep(self._delay_seconds)
            await self.flush()

    async def flush(self) -> None:
        """Writes all that waits."""
        self._is_due.clear()
        while self._pending:
            batch = dict(islice(self._pending.items(), _MAX_ENTRIES))
            for key in batch:
                del self._pending[key]
            await self._write(batch)
