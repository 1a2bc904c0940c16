import pytest
from turnscore_service.admission import Admission, Demand
from turnscore_service.deadline import Deadline
from turnscore_service.errors import OverloadedError
from turnscore_service.settings import AdmissionSettings

LATER = Deadline.after_ms(86_400_000)


def one(items: int, tokens: int, scorer: str = "a") -> dict[str, Demand]:
    return {scorer: Demand(items, tokens)}


def assert_refused(admission: Admission, demands: dict[str, Demand], deadline: Deadline = LATER) -> OverloadedError:
    with pytest.raises(OverloadedError) as refused, admission.reserve(demands, deadline):
        pytest.fail("admitted")
    return refused.value


def test_a_full_service_refuses_at_once_and_has_room_again_afterwards():
    admission = Admission(AdmissionSettings(max_items=2, max_tokens=1000))
    with admission.reserve(one(2, 10), LATER):
        assert_refused(admission, one(1, 10))
    with admission.reserve(one(1, 10), LATER):
        pass


def test_tokens_are_counted_as_well_as_items():
    admission = Admission(AdmissionSettings(max_items=100, max_tokens=100))
    with admission.reserve(one(1, 90), LATER):
        assert_refused(admission, one(1, 11))


def test_a_request_alone_is_admitted_however_large():
    admission = Admission(AdmissionSettings(max_items=1, max_tokens=1))
    with admission.reserve(one(50, 5000), LATER):
        pass


def test_room_comes_back_when_the_work_fails():
    admission = Admission(AdmissionSettings(max_items=1))
    with pytest.raises(ZeroDivisionError), admission.reserve(one(1, 1), LATER):
        raise ZeroDivisionError
    with admission.reserve(one(1, 1), LATER):
        pass


def test_a_burst_for_one_scorer_leaves_the_others_their_room():
    admission = Admission(AdmissionSettings(max_items=2))
    with admission.reserve(one(2, 1, "fed"), LATER):
        assert_refused(admission, one(1, 1, "fed"))
        with admission.reserve(one(2, 1, "engagement"), LATER):
            pass


def test_a_request_for_two_scorers_is_admitted_whole_or_not_at_all():
    admission = Admission(AdmissionSettings(max_items=1))
    with admission.reserve(one(1, 1, "fed"), LATER):
        assert_refused(admission, {"engagement": Demand(1, 1), "fed": Demand(1, 1)})
        with admission.reserve(one(1, 1, "engagement"), LATER):
            pass


def test_a_scorer_that_is_done_gives_its_room_back_before_the_others():
    admission = Admission(AdmissionSettings(max_items=1))
    with admission.reserve({"fed": Demand(1, 1), "engagement": Demand(1, 1)}, LATER) as reservation:
        reservation.release("engagement")
        reservation.release("engagement")
        with admission.reserve(one(1, 1, "engagement"), LATER):
            assert_refused(admission, one(1, 1, "engagement"))


def test_the_advice_to_wait_follows_the_drain_rate():
    admission = Admission(AdmissionSettings(max_items=1000, max_tokens=1000), {"a": lambda: 0.002})
    with admission.reserve(one(1, 1000), LATER):
        assert assert_refused(admission, one(1, 500)).retry_after_ms == 1000
        assert assert_refused(admission, one(1, 100)).retry_after_ms == 200


def test_a_deadline_that_the_queue_cannot_meet_is_refused_before_any_work():
    admission = Admission(AdmissionSettings(), {"a": lambda: 0.2})
    with admission.reserve(one(1, 10), LATER):
        refused = assert_refused(admission, one(1, 1), Deadline.after_ms(500))
        assert 1550 <= refused.retry_after_ms <= 1750
        with admission.reserve(one(1, 1), Deadline.after_ms(5000)):
            pass


def test_the_wait_counts_what_is_admitted_as_tokenizing_found_earlier_turns():
    admission = Admission(AdmissionSettings(), {"a": lambda: 0.01})
    assert admission.expected_wait_seconds("a") == 0
    admission.learn("a", estimated=100, real=50)
    with admission.reserve(one(1, 400), LATER):
        assert admission.expected_wait_seconds("a") == pytest.approx(2.0)


def test_no_wait_is_told_before_anything_is_known_of_the_pace():
    admission = Admission(AdmissionSettings(max_items=1), {"a": lambda: None})
    with admission.reserve(one(1, 400), LATER):
        assert admission.expected_wait_seconds("a") is None
        assert assert_refused(admission, one(1, 1)).retry_after_ms == 1000
