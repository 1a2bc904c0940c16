"""What a hostile run is judged by: each claim can be broken, and the extremes are what they say."""

import json
from dataclasses import replace

import pytest
from turnscore_load.answers import Answer, Outcome
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.hostile.attacks import Attack
from turnscore_load.hostile.extremes import MAX_BODY_BYTES, extremes
from turnscore_load.hostile.flooder import BATCH_TURNS, batches
from turnscore_load.hostile.neighbours import Beside
from turnscore_load.hostile.report import checks, report

RIGHT = Attack(name="a form", outcome="200", is_right=True, waits_seconds=[0.09], grown_bytes=0)


def stage(*calls: tuple[Outcome, float]) -> Stage:
    return Stage(
        [
            CallRecord(due_at=0.0, sent_at=0.0, done_at=seconds, answer=Answer(outcome=outcome))
            for outcome, seconds in calls
        ],
        0.0,
        1.0,
    )


def beside(*flooded: tuple[Outcome, float]) -> Beside:
    quiet = stage(*[("answered", 0.02)] * 10)
    return Beside(kind="fresh", quiet=quiet, flooded=stage(*flooded), statuses={}, batch_seconds=0.06)


def kept(besides: list[Beside], attacks: list[Attack]) -> list[bool]:
    return [each.is_kept for each in checks(besides, attacks, 0.05)]


def test_single_turns_in_time_and_quick_health_checks_keep_every_promise():
    moment = replace(RIGHT, waits_seconds=[0.3, 0.02, 0.01])
    assert kept([beside(*[("answered", 0.09)] * 100)], [RIGHT, moment]) == [True] * 4


@pytest.mark.parametrize(
    ("flooded", "verdicts"),
    [
        ([*[("answered", 0.09)] * 98, ("refused", 0.001), ("refused", 0.001)], [False, False]),
        ([*[("answered", 0.09)] * 98, ("answered", 0.11), ("answered", 0.11)], [True, False]),
        ([], [False, False]),
    ],
)
def test_too_few_or_too_late_answers_break_their_promise(flooded: list[tuple[Outcome, float]], verdicts: list[bool]):
    assert kept([beside(*flooded)], []) == verdicts


@pytest.mark.parametrize(
    "wrong",
    [
        {"is_right": False},
        {"waits_seconds": [0.11, 0.09, 0.12]},
        {"waits_seconds": [float("inf")]},
        {"grown_bytes": 2**27},
    ],
)
def test_a_wrong_answer_a_silent_service_and_memory_that_grows_break_it(wrong: dict[str, object]):
    broken = replace(RIGHT, **wrong)  # type: ignore[arg-type]
    assert kept([], [broken]) == [False]
    assert "| NO |" in report(checks([], [broken], 0.05), 0.05)


def test_the_extremes_are_within_a_body_and_always_the_same():
    found = extremes(with_encoder=True)
    assert [each.body for each in found] == [each.body for each in extremes(with_encoder=True)]
    assert {each.name for each in extremes()} < {each.name for each in found}
    assert max(len(each.body) for each in found) <= MAX_BODY_BYTES
    assert len({each.name for each in found}) == len(found)


def test_no_turn_of_a_fresh_flood_comes_twice_and_a_known_one_is_always_the_same():
    fresh, known = batches("fed", fresh=True), batches("fed", fresh=False)
    items = [json.dumps(item) for _ in range(3) for item in json.loads(next(fresh))["items"]]
    assert len(set(items)) == len(items) == 3 * BATCH_TURNS
    assert next(known) == next(known)
