"""How long an event loop does nothing else: the CPU time that its thread spends between two of its rounds.

CPU time of the thread, not time of day: a busy machine takes nothing from it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Pulse:
    """The longest silence so far."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._last = time.thread_time()

    def beat(self) -> None:
        """Called in every round of the loop."""
        now = time.thread_time()
        self.longest_seconds = max(self.longest_seconds, now - self._last)
        self._last = now


@asynccontextmanager
async def pulse() -> AsyncIterator[Pulse]:
    """Watches the running loop while the block lasts."""
    watched = Pulse()

    async def beat() -> None:
        while True:
            watched.beat()
            await asyncio.sleep(0)

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        yield watched
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        task.cancel()
