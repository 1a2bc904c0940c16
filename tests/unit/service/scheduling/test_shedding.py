import pytest
from turnscore_core.errors import OverloadedError
from turnscore_core.scoring import Deadline
from turnscore_service.scheduling.admission import (
    MOST_REFUSED_CALLERS,
    REFUSALS_IN_A_ROW,
    SHED_PER_WITNESS,
    Admission,
    Demand,
)
from turnscore_service.settings.service import AdmissionSettings

LATER = Deadline.after_ms(86_400_000)


def one(scorer="fed"):
    return {scorer: Demand(1, 1)}


def full(scorer="fed"):
    """Room for one turn a scorer, which that scorer's has taken."""
    shedding = Admission(AdmissionSettings(max_items=1))
    return shedding, shedding.reserve(one(scorer), LATER)


def refuse(shedding, times):
    for _ in range(times):
        with pytest.raises(OverloadedError):
            shedding.reserve(one(), LATER)


def shed(shedding):
    """How many requests in a row are shed."""
    count = 0
    while shedding.shed() is not None:
        count += 1
    return count


def test_everything_is_decoded_until_enough_was_refused_in_a_row():
    shedding, _ = full()
    refuse(shedding, REFUSALS_IN_A_ROW - 1)
    assert shed(shedding) == 0
    refuse(shedding, 1)
    assert shed(shedding) == SHED_PER_WITNESS


def test_whoever_takes_the_room_that_came_back_shows_nothing_about_the_others():
    shedding, reservation = full()
    refuse(shedding, REFUSALS_IN_A_ROW)
    reservation.release("fed")
    shedding.reserve(one(), LATER)
    assert shed(shedding) == SHED_PER_WITNESS


def test_a_witness_waits_no_longer_than_it_would_have_waited():
    shedding = Admission(AdmissionSettings(), {"fed": lambda: 1.0})
    held = shedding.reserve({"fed": Demand(1, 5)}, LATER)
    for _ in range(REFUSALS_IN_A_ROW):
        with pytest.raises(OverloadedError):
            shedding.reserve(one(), Deadline.after_ms(4000))
    assert shedding.shed() is not None
    held.release("fed")
    shedding.reserve({"fed": Demand(1, 2)}, LATER)  # 2 s of work: who has 4 s is admitted again
    assert shedding.shed() is None


def test_what_a_flood_is_refused_says_nothing_about_another():
    shedding = Admission(AdmissionSettings(max_items=10))
    shedding.reserve({"fed": Demand(10, 1)}, LATER, "flood")
    for _ in range(REFUSALS_IN_A_ROW):
        with pytest.raises(OverloadedError):
            shedding.reserve(one(), LATER, "flood")
    assert shedding.full_scorer("flood") == "fed"
    assert shedding.full_scorer("other") is None
    for _ in range(3):
        shedding.reserve(one(), LATER, "other").release("fed")
        shedding.note_known({"fed"}, "other")
    assert shedding.shed("other") is None
    assert shedding.shed("flood") is not None


def test_no_more_callers_are_remembered_than_stated():
    shedding = Admission(AdmissionSettings(max_items=1))
    shedding.reserve(one(), LATER, "holder")
    shedding.reserve(one(), LATER, "another")
    for number in range(2 * MOST_REFUSED_CALLERS):
        with pytest.raises(OverloadedError):
            shedding.reserve(one(), LATER, f"caller {number}")
    assert len(shedding._rows) == MOST_REFUSED_CALLERS
