"""The breaker: opens for a share of failures, is closed by a probe alone, and waits longer each time."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from turnscore_service.cache.redis_level import Breaker
from turnscore_service.settings.cache import CacheSettings

SETTINGS = CacheSettings(breaker_failures=3, breaker_window=6, breaker_retry_seconds=1, breaker_max_retry_seconds=5)


def closed() -> Breaker:
    breaker = Breaker("test", SETTINGS)
    breaker.begin_probe()
    breaker.end_probe(has_failed=False)
    return breaker


def record(breaker: Breaker, ends: str) -> None:
    """`x` for each call that failed, `.` for each that did not."""
    for end in ends:
        breaker.record(has_failed=end == "x")


def open_and_probe(breaker: Breaker, *, has_failed: bool) -> float:
    record(breaker, "xxx")
    pause = breaker.pause_seconds()
    breaker.begin_probe()
    breaker.end_probe(has_failed=has_failed)
    return pause


@pytest.mark.parametrize(
    ("ends", "is_closed"), [("xx", True), ("xxx", False), ("x.x.x", False), ("x..x..x..x", True), ("." * 50, True)]
)
def test_it_opens_when_too_many_of_the_last_calls_failed(ends: str, is_closed: bool):
    breaker = closed()
    record(breaker, ends)
    assert breaker.is_closed == is_closed


def test_it_begins_open_and_is_probed_at_once():
    breaker = Breaker("test", SETTINGS)
    assert (breaker.state, breaker.pause_seconds()) == ("open", 0)


def test_nothing_but_a_probe_closes_it():
    breaker = closed()
    record(breaker, "xxx......")
    assert breaker.state == "open"
    breaker.begin_probe()
    record(breaker, "......")
    assert (breaker.state, breaker.is_closed) == ("half_open", False)
    breaker.end_probe(has_failed=True)
    assert breaker.state == "open"
    breaker.begin_probe()
    breaker.end_probe(has_failed=False)
    assert breaker.is_closed


def test_it_forgets_the_failures_from_before_it_opened():
    breaker = closed()
    open_and_probe(breaker, has_failed=False)
    record(breaker, "xx")
    assert breaker.is_closed


def test_it_waits_twice_as_long_each_time_up_to_the_most():
    breaker = closed()
    record(breaker, "xxx")
    pauses = []
    for _ in range(5):
        pauses.append(breaker.pause_seconds())
        breaker.begin_probe()
        breaker.end_probe(has_failed=True)
    assert pauses == [1, 2, 4, 5, 5]


def test_one_that_opens_soon_after_a_good_probe_waits_longer_too():
    breaker = closed()
    assert [open_and_probe(breaker, has_failed=False) for _ in range(3)] == [1, 2, 4]
    record(breaker, "......")
    assert open_and_probe(breaker, has_failed=False) == 1


async def test_waiting_for_it_to_open_ends_when_it_does():
    breaker = closed()
    waiting = asyncio.create_task(breaker.wait_until_open())
    await asyncio.sleep(0)
    assert not waiting.done()
    record(breaker, "xxx")
    await asyncio.wait_for(waiting, 60)


def test_its_state_is_told():
    breaker = closed()
    told = []
    for step in (lambda: None, lambda: record(breaker, "xxx"), breaker.begin_probe):
        step()
        told.append(REGISTRY.get_sample_value("turnscore_cache_breaker_state", {"operation": "test"}))
    assert told == [0, 2, 1]
