from contextlib import contextmanager

import pytest
from turnscore_core.errors import OverloadedError
from turnscore_core.scoring import Deadline
from turnscore_service.scheduling.admission import Admission, Demand
from turnscore_service.settings.service import AdmissionSettings

LATER = Deadline.after_ms(86_400_000)


def one(items, tokens, scorer="a"):
    return {scorer: Demand(items, tokens)}


@contextmanager
def reserve(admission, demands, deadline, caller=""):
    """Holds room while the block runs."""
    reservation = admission.reserve(demands, deadline, caller)
    yield reservation
    for scorer in demands:
        reservation.release(scorer)


def assert_refused(admission, demands, deadline=LATER):
    with pytest.raises(OverloadedError) as refused, reserve(admission, demands, deadline):
        pytest.fail("admitted")
    return refused.value


def test_the_advice_to_wait_follows_the_drain_rate():
    admission = Admission(AdmissionSettings(max_items=1000, max_tokens=1000), {"a": lambda: 0.002})
    with reserve(admission, one(1, 1000), LATER):
        assert assert_refused(admission, one(1, 500)).retry_after_ms == 1000
        assert assert_refused(admission, one(1, 100)).retry_after_ms == 200


def test_a_flood_leaves_another_caller_room_and_time():
    admission = Admission(AdmissionSettings(max_items=100, max_tokens=1000), {"a": lambda: 0.1})
    soon = Deadline.after_ms(5000)
    with reserve(admission, one(100, 1000), LATER, "flood"):
        with pytest.raises(OverloadedError):
            admission.reserve(one(1, 10), LATER, "flood")
        with reserve(admission, one(1, 10), soon, "other"), reserve(admission, one(1, 10), soon, "other"):
            with pytest.raises(OverloadedError):  # beyond an equal part
                admission.reserve(one(49, 10), LATER, "other")
            with pytest.raises(OverloadedError):
                admission.reserve(one(1, 1), LATER, "flood")


def test_callers_together_never_have_more_than_twice_the_room():
    admission = Admission(AdmissionSettings(max_items=10, max_tokens=1000))
    held = 0
    for number in range(1000):
        try:
            admission.reserve(one(3, 3), LATER, f"caller {number}")
        except OverloadedError:
            continue
        held += 3
    assert held == 18
    assert len(admission._callers["a"]) == 6


def test_the_wait_of_a_caller_is_what_stands_before_them_when_turns_are_taken():
    admission = Admission(AdmissionSettings(), {"a": lambda: 0.01})
    with reserve(admission, one(100, 1000), LATER, "flood"), reserve(admission, one(1, 10), LATER, "other"):
        assert admission.expected_wait_seconds("a", "flood", 10) == pytest.approx(10.1)
        assert admission.expected_wait_seconds("a", "other", 10) == pytest.approx(0.3)
        assert admission.expected_wait_seconds("a", "new", 10) == pytest.approx(0.2)
