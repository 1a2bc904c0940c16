"""Whose turn it is among callers that wait, and how the event loop is shared."""

import asyncio
import time

from turnscore_service.auth.access import CALLER, Caller
from turnscore_service.scheduling.fairness import (
    MOST_CALLERS,
    SLICE_SECONDS,
    CooperativeScheduler,
    FairOrder,
    TimeSlice,
)


def serve(order, waiting, times):
    """Who is served in so many rounds, each of whom waits on; `waiting` says what each costs."""
    served = []
    for _ in range(times):
        served.append(order.choose(waiting))
        order.charge(served[-1], waiting[served[-1]])
    return served


def joined(*callers):
    order = FairOrder()
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
    order = FairOrder()
    for number in range(10 * MOST_CALLERS):
        order.join(f"caller {number}")
        order.charge(f"caller {number}", 5)
    assert len(order._had) == MOST_CALLERS


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def work(cooperative, caller, parts, done, *, is_large=True):
    CALLER.set(Caller(share=caller))
    slices = TimeSlice(cooperative, is_large=is_large)
    for _ in range(parts):
        await slices.pause()
        busy(SLICE_SECONDS)
        done.append(caller)


async def test_the_loop_comes_round_after_every_slice_however_many_wait():
    cooperative, done, rounds = CooperativeScheduler(), [], 0
    tasks = [asyncio.create_task(work(cooperative, "a", 5, done)) for _ in range(20)]
    while not all(task.done() for task in tasks):
        before = len(done)
        await asyncio.sleep(0)
        rounds += 1
        assert len(done) - before <= 1
    assert len(done) == 100
    assert rounds >= 100


async def test_a_small_request_never_waits_for_a_turn():
    cooperative, done = CooperativeScheduler(), []
    flood = [asyncio.create_task(work(cooperative, "flood", 4, done)) for _ in range(10)]
    await asyncio.sleep(0)
    await work(cooperative, "other", 1, done, is_large=False)
    assert done == ["other"]
    await asyncio.gather(*flood)


async def test_who_gives_up_while_waiting_holds_up_no_other():
    cooperative, done = CooperativeScheduler(), []
    leaving = [asyncio.create_task(work(cooperative, "left", 1, done)) for _ in range(3)]
    staying = asyncio.create_task(work(cooperative, "stayed", 2, done))
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.wait_for(staying, 30)
    assert done == ["stayed", "stayed"]
