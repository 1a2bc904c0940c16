"""Waiting for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable


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
