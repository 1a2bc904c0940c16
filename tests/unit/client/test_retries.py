"""What every client tries again, when, and within which deadline."""

import math
from contextlib import nullcontext

import pytest
import turnscore_client
from turnscore_client._errors import ERROR_CLASSES
from turnscore_client._retry import Attempts, RetryPolicy
from turnscore_client.testing import ManualClock
from turnscore_wire import ERROR_TABLE


def delays(policy, count, hint_ms=None):
    return [policy.delay_seconds(failures, hint_ms) for failures in range(1, count + 1)]


def attempts(timeout_seconds=10.0, deadline_ms=None, clock=None, **policy):
    given = {"max_retries": 3, "draw": lambda: 0.0, "now": (clock or ManualClock()).now, **policy}
    return Attempts(RetryPolicy(timeout_seconds=timeout_seconds, **given), deadline_ms)


def test_delays_double_up_to_the_longest_and_jitter_shortens_them_by_its_share_at_most():
    assert delays(RetryPolicy(draw=lambda: 1.0), 2) == pytest.approx([0.05, 0.1])
    assert RetryPolicy(draw=lambda: 0.0).delay_seconds(1000, None) == turnscore_client._defaults.LONGEST_DELAY_SECONDS
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


@pytest.mark.parametrize("code", list(turnscore_client.ErrorCode))
def test_retryable_codes_are_retried_and_no_others(ask, mock, code):
    mock.fail_next(code, "because", field="response")
    if ERROR_TABLE[code].is_retryable:
        ask(mock, "score", response="a")
        assert len(mock.requests) == 2
    else:
        with pytest.raises(ERROR_CLASSES[code]) as raised:
            ask(mock, "score", response="a", request_id="r-3")
        assert (raised.value.message, raised.value.field, raised.value.request_id) == ("because", "response", "r-3")
        assert len(mock.requests) == 1
        assert mock.clock.sleeps == []


@pytest.mark.parametrize(("status", "times"), [(502, 2), (503, 2), (504, 2), (500, 1), (404, 1), (200, 1)])
def test_a_proxy_that_finds_no_service_is_asked_again_and_no_other_page_is(ask_http, mock, status, times):
    mock.answer_next(status, b"<html>no server is available</html>")
    with pytest.raises(turnscore_client.UnexpectedReplyError) if times == 1 else nullcontext():
        ask_http(mock, "score", response="a")
    assert len(mock.requests) == times


def test_retries_end_with_the_last_error(ask, mock):
    mock.fail_next("overloaded", times=2)
    mock.fail_next("not_ready", times=5)
    with pytest.raises(turnscore_client.NotReadyError):
        ask(mock, "score", response="a", client={"max_retries": 3})
    assert len(mock.requests) == 4
    assert len(mock.clock.sleeps) == 3


def test_retry_after_is_honoured(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=700)
    ask(mock, "score", response="a")
    assert 0.7 <= mock.clock.sleeps[0] <= 0.77


def test_a_retry_after_header_alone_is_honoured(ask, mock):
    body = b'{"error": {"code": "not_ready", "message": "loading"}, "request_id": "r-1"}'
    mock.answer_next(503, body, {"Retry-After": "3"})
    ask(mock, "score", response="a")
    assert 3.0 <= mock.clock.sleeps[0] <= 3.3


def test_a_retry_after_beyond_the_deadline_is_raised_at_once(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=60_000)
    with pytest.raises(turnscore_client.OverloadedError) as raised:
        ask(mock, "score", response="a")
    assert raised.value.retry_after_ms == 60_000
    assert mock.clock.sleeps == []


def test_retries_stay_inside_the_overall_deadline(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=300, times=50)
    with pytest.raises(turnscore_client.OverloadedError):
        ask(mock, "score", response="a", timeout_seconds=1.0, client={"max_retries": 50})
    assert len(mock.requests) == 4
    assert mock.clock.seconds < 1.0


def test_each_attempt_tells_the_service_the_time_left(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=1000, times=2)
    ask(mock, "score", response="a", client={"timeout_seconds": 5.0})
    told = [request.body["deadline_ms"] for request in mock.requests]
    slept = [0.0, *mock.clock.sleeps]
    assert told == [math.floor(1000 * (5.0 - sum(slept[: n + 1]))) for n in range(3)]


def test_a_call_without_time_left_is_not_sent(ask, mock):
    with pytest.raises(turnscore_client.DeadlineExceededError) as raised:
        ask(mock, "score", response="a", timeout_seconds=0, request_id="r-1")
    assert raised.value.request_id == "r-1"
    assert mock.requests == []
