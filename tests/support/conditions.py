"""Waiting for a condition, never for a time; and how long the event loop was silent."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


async def until(claim: Callable[[], object], seconds: float = 120) -> None:
    """Returns once the claim holds; fails where it never does."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "the condition never held"
        await asyncio.sleep(0.001)


def wait_until(claim: Callable[[], object], seconds: float = 300) -> None:
    """The same of another process, which nothing here can be awaited of."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.05)


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
