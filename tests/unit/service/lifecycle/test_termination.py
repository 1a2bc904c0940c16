import asyncio
import signal
from collections.abc import Iterator

import pytest
from support.conditions import until
from turnscore_service import metrics
from turnscore_service.lifecycle.health import Health
from turnscore_service.lifecycle.signals import drain_before_stopping


@pytest.fixture
def handed_on() -> Iterator[list[int]]:
    """The signals that reach the handler which stood before."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def nothing() -> None:
    pass


async def test_sigterm_in_the_middle_of_a_metrics_write_drains_and_does_not_lock_up(handed_on: list[int]):
    health = Health(state="ready")
    drain_before_stopping(lambda: health.become("draining"), nothing, drain_seconds=0, shutdown_seconds=60)
    try:
        with metrics.READY._value._lock:  # what a write to this gauge holds, and what draining needs
            signal.raise_signal(signal.SIGTERM)
        await until(lambda: handed_on == [signal.SIGTERM])
        assert health.state == "draining"
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def test_conversations_end_then_the_server_stops_then_it_waits_no_longer(handed_on: list[int]):
    done: list[object] = []

    async def end_conversations() -> None:
        done.append(list(handed_on))

    drain_before_stopping(lambda: done.append("drain"), end_conversations, drain_seconds=0.02, shutdown_seconds=0.02)
    try:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert handed_on == []
        await until(lambda: handed_on == [signal.SIGTERM, signal.SIGINT])
        assert done == ["drain", []]  # conversations end before the server stops
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
