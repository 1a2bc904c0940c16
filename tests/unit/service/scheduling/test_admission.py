"""Who is admitted, whose turn it is, and who is refused undecoded."""

import asyncio
import time
from contextlib import contextmanager

import pytest
from turnscore_core.errors import OverloadedError
from turnscore_core.scoring import Deadline
from turnscore_service.auth.access import CALLER, Caller
from turnscore_service.scheduling import fairness
from turnscore_service.scheduling.admission import (
    MOST_REFUSED_CALLERS,
    REFUSALS_IN_A_ROW,
    SHED_PER_WITNESS,
    Admission,
    Demand,
)
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


def one_turn(scorer="fed"):
    return {scorer: Demand(1, 1)}


def full(scorer="fed"):
    """Room for one_turn turn a scorer, which that scorer's has taken."""
    shedding = Admission(AdmissionSettings(max_items=1))
    return shedding, shedding.reserve(one_turn(scorer), LATER)


def refuse(shedding, times):
    for _ in range(times):
        with pytest.raises(OverloadedError):
            shedding.reserve(one_turn(), LATER)


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
    shedding.reserve(one_turn(), LATER)
    assert shed(shedding) == SHED_PER_WITNESS


def test_a_witness_waits_no_longer_than_it_would_have_waited():
    shedding = Admission(AdmissionSettings(), {"fed": lambda: 1.0})
    held = shedding.reserve({"fed": Demand(1, 5)}, LATER)
    for _ in range(REFUSALS_IN_A_ROW):
        with pytest.raises(OverloadedError):
            shedding.reserve(one_turn(), Deadline.after_ms(4000))
    assert shedding.shed() is not None
    held.release("fed")
    shedding.reserve({"fed": Demand(1, 2)}, LATER)  # 2 s of work: who has 4 s is admitted again
    assert shedding.shed() is None


def test_what_a_flood_is_refused_says_nothing_about_another():
    shedding = Admission(AdmissionSettings(max_items=10))
    shedding.reserve({"fed": Demand(10, 1)}, LATER, "flood")
    for _ in range(REFUSALS_IN_A_ROW):
        with pytest.raises(OverloadedError):
            shedding.reserve(one_turn(), LATER, "flood")
    assert shedding.would_shed("flood").scorer == "fed"
    assert shedding.would_shed("other") is None
    for _ in range(3):
        shedding.reserve(one_turn(), LATER, "other").release("fed")
        shedding.note_known({"fed"}, "other")
    assert shedding.shed("other") is None
    assert shedding.shed("flood") is not None


def test_no_more_refused_callers_are_remembered_than_stated():
    shedding = Admission(AdmissionSettings(max_items=1))
    shedding.reserve(one_turn(), LATER, "holder")
    shedding.reserve(one_turn(), LATER, "another")
    for number in range(2 * MOST_REFUSED_CALLERS):
        with pytest.raises(OverloadedError):
            shedding.reserve(one_turn(), LATER, f"caller {number}")
    assert len(shedding._rows) == MOST_REFUSED_CALLERS


def serve(order, waiting, times):
    """Who is served in so many rounds, each of whom waits on; `waiting` says what each costs."""
    served = []
    for _ in range(times):
        served.append(order.choose(waiting))
        order.charge(served[-1], waiting[served[-1]])
    return served


def joined(*callers):
    order = fairness.FairOrder()
    for caller in callers:
        order.join(caller)
    return order


def test_who_asks_little_again_and_again_is_always_next():
    order = joined("flood")
    for _ in range(100):
        serve(order, {"flood": 1000}, 1)
        order.join("other")
        assert serve(order, {"flood": 1000, "other": 30}, 1) == ["other"]


def test_who_was_away_is_owed_nothing_for_it():
    order = joined("busy")
    serve(order, {"busy": 10}, 100)
    order.join("away")
    assert serve(order, {"busy": 10, "away": 10}, 10).count("away") <= 6


def test_no_more_callers_are_remembered_than_stated():
    order = fairness.FairOrder()
    for number in range(10 * fairness.MOST_CALLERS):
        order.join(f"caller {number}")
        order.charge(f"caller {number}", 5)
    assert len(order._had) == fairness.MOST_CALLERS


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def work(cooperative, caller, parts, done, *, is_large=True):
    CALLER.set(Caller(share=caller))
    slices = fairness.TimeSlice(cooperative, is_large=is_large)
    for _ in range(parts):
        await slices.pause()
        busy(fairness.SLICE_SECONDS)
        done.append(caller)


async def test_the_loop_comes_round_after_every_slice_however_many_wait():
    cooperative, done, rounds = fairness.CooperativeScheduler(), [], 0
    tasks = [asyncio.create_task(work(cooperative, "a", 5, done)) for _ in range(20)]
    while not all(task.done() for task in tasks):
        before = len(done)
        await asyncio.sleep(0)
        rounds += 1
        assert len(done) - before <= 1
    assert len(done) == 100
    assert rounds >= 100


async def test_a_small_request_never_waits_for_a_turn():
    cooperative, done = fairness.CooperativeScheduler(), []
    flood = [asyncio.create_task(work(cooperative, "flood", 4, done)) for _ in range(10)]
    await asyncio.sleep(0)
    await work(cooperative, "other", 1, done, is_large=False)
    assert done == ["other"]
    await asyncio.gather(*flood)


async def test_who_gives_up_while_waiting_holds_up_no_other():
    cooperative, done = fairness.CooperativeScheduler(), []
    leaving = [asyncio.create_task(work(cooperative, "left", 1, done)) for _ in range(3)]
    staying = asyncio.create_task(work(cooperative, "stayed", 2, done))
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.wait_for(staying, 30)
    assert done == ["stayed", "stayed"]
