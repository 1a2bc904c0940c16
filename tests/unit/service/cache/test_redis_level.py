"""The breaker: opens for a share of failures, is closed by a probe alone, and waits longer each time."""

import pytest
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
