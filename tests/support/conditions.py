"""Waiting for a condition, never for a time; how long the event loop was silent; and one in a thread of its own."""

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager

from anyio.from_thread import start_blocking_portal


async def until(claim, seconds=120):
    """Returns once the claim holds; fails where it never does."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "the condition never held"
        await asyncio.sleep(0.001)


def wait_until(claim, seconds=300):
    """The same of another process, which nothing here can be awaited of."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.05)


class Pulse:
    """The longest silence so far."""

    def __init__(self):
        self.longest_seconds = 0.0
        self._last = time.thread_time()

    def beat(self):
        """Called in every round of the loop."""
        now = time.thread_time()
        self.longest_seconds = max(self.longest_seconds, now - self._last)
        self._last = now


@asynccontextmanager
async def pulse():
    """Watches the running loop while the block lasts."""
    watched = Pulse()

    async def beat():
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


@contextmanager
def in_a_thread(opened):
    """What is opened, in an event loop of a thread, for tests that block or run a program against it."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened) as found:
        yield found
