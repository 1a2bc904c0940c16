"""Clocks: where the client takes the time from and how it waits, so that tests need not wait."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Time in seconds from any fixed point, and two ways to let some of it pass."""

    def now(self) -> float:
        """Seconds since a fixed point; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Returns that much later."""

    async def sleep_async(self, seconds: float) -> None:
        """Returns that much later, letting others run meanwhile."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Blocks this thread: the pause before another attempt, which the server's advice or the backoff asks for."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Yields to the event loop."""
        await asyncio.sleep(seconds)
