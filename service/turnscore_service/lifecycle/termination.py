"""Termination: what SIGTERM begins, and when the server's own handler has its turn. Belongs to one event loop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable


def drain_before_stopping(
    begin_drain: Callable[[], object],
    end_conversations: Callable[[], Awaitable[object]],
    drain_seconds: float,
    shutdown_seconds: float,
) -> None:
    """On SIGTERM begins to drain at once; `drain_seconds` later conversations end, and the handler before follows."""
    loop = asyncio.get_running_loop()
    server_handler = signal.getsignal(signal.SIGTERM)
    draining: list[asyncio.Task[None]] = []

    def hand_on(number: int) -> None:
        if callable(server_handler):
            server_handler(number, None)

    async def drain() -> None:
        begin_drain()
        await asyncio.sleep(drain_seconds)
        last = loop.time() + shutdown_seconds
        # The server cuts every WebSocket off; by then no answer may be due on one.
        await end_conversations()
        hand_on(signal.SIGTERM)
        await asyncio.sleep(last - loop.time())
        # The server takes SIGINT after SIGTERM as the order not to wait for open connections any longer.
        hand_on(signal.SIGINT)

    def begin() -> None:
        if not draining:
            draining.append(loop.create_task(drain()))

    # The loop drains, not a signal handler: that one interrupts code that may hold a lock which draining needs too,
    # such as a metric's.
    loop.add_signal_handler(signal.SIGTERM, begin)
