import pytest
from turnscore_service.admission import Admission
from turnscore_service.errors import OverloadedError
from turnscore_service.settings import AdmissionSettings


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_full_service_refuses_at_once_and_has_room_again_afterwards():
    admission = Admission(AdmissionSettings(max_items=2, max_tokens=1000))
    with admission.reserve(2, 10), pytest.raises(OverloadedError), admission.reserve(1, 10):
        pytest.fail("admitted")
    with admission.reserve(1, 10):
        pass


def test_tokens_are_counted_as_well_as_items():
    admission = Admission(AdmissionSettings(max_items=100, max_tokens=100))
    with admission.reserve(1, 90), pytest.raises(OverloadedError), admission.reserve(1, 11):
        pytest.fail("admitted")


def test_a_request_alone_is_admitted_however_large():
    admission = Admission(AdmissionSettings(max_items=1, max_tokens=1))
    with admission.reserve(50, 5000):
        pass


def test_room_comes_back_when_the_work_fails():
    admission = Admission(AdmissionSettings(max_items=1))
    with pytest.raises(ZeroDivisionError), admission.reserve(1, 1):
        raise ZeroDivisionError
    with admission.reserve(1, 1):
        pass


def test_the_advice_to_wait_follows_the_drain_rate():
    clock = Clock()
    admission = Admission(AdmissionSettings(max_items=1000, max_tokens=1000), clock)
    for _ in range(10):  # 1,000 tokens leave in one second
        with admission.reserve(1, 100):
            clock.now += 0.1
    with admission.reserve(1, 1000), pytest.raises(OverloadedError) as refused, admission.reserve(1, 500):
        pytest.fail("admitted")
    assert 400 <= refused.value.retry_after_ms <= 600


def test_what_was_answered_long_ago_is_forgotten():
    clock = Clock()
    admission = Admission(AdmissionSettings(), clock)
    for _ in range(1000):
        with admission.reserve(1, 1):
            clock.now += 1
    assert len(admission._released) < 10
