"""Retry arithmetic: delays, and the one deadline they have to fit into."""

import pytest
from turnscore_client import _defaults
from turnscore_client._retry import Attempts, RetryPolicy
from turnscore_client.testing import ManualClock


def delays(policy, count, hint_ms=None):
    return [policy.delay_seconds(failures, hint_ms) for failures in range(1, count + 1)]


def attempts(timeout_seconds=10.0, deadline_ms=None, clock=None, **policy):
    given = {"max_retries": 3, "draw": lambda: 0.0, "now": (clock or ManualClock()).now, **policy}
    return Attempts(RetryPolicy(timeout_seconds=timeout_seconds, **given), deadline_ms)


def test_delays_double_up_to_the_longest_and_jitter_shortens_them_by_its_share_at_most():
    assert delays(RetryPolicy(draw=lambda: 1.0), 2) == pytest.approx([0.05, 0.1])
    assert RetryPolicy(draw=lambda: 0.0).delay_seconds(1000, None) == _defaults.LONGEST_DELAY_SECONDS
    assert delays(RetryPolicy(draw=lambda: 0.0), 7) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


@pytest.mark.parametrize(
    ("timeout_seconds", "own_ms", "slept", "expected"),
    [(10.0, None, 0.0, 10_000), (10.0, 300, 0.25, 50), (10.0, 300, 5.0, 1), (10_000.0, None, 0.0, 600_000)],
)
def test_the_deadline_sent_is_the_time_left(timeout_seconds, own_ms, slept, expected):
    clock = ManualClock()
    calls = attempts(timeout_seconds=timeout_seconds, clock=clock)
    clock.sleep(slept)
    assert calls.deadline_ms_left(own_ms) == pytest.approx(expected, abs=1)
