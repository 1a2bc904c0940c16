"""The endurance run's own judgement: made-up runs break each promise, and an honest one none."""

import json

import pytest
from turnscore_load.callers import CORPUS, FILE, PLAIN, RAW, judge_corpus, judge_file
from turnscore_load.oracle import Ask, FaultLog, Oracle, Place, Verdict
from turnscore_load.scenarios.endurance import check_lines, find_failures

TURNS = [{"speaker": speaker, "text": text} for speaker, text in zip(["user", "system"] * 2, "abcd", strict=True)]
SCORERS = ("engagement", "quality")
PLACES = [Place(0, 1), Place(0, 3)]


def value_of(place, model):
    return place.turn / 10 + 0.05 * (model == "engagement:2"), 10.0 * place.turn


ORACLE = Oracle(
    [TURNS],
    {
        model: {place: value_of(place, model) for place in [*PLACES, Place(0, 0)]}
        for model in ("engagement:1", "engagement:2", "quality:1", "fed:1")
    },
)
TURN, DIALOGUE = Ask("score", PLACES[:1], SCORERS), Ask("score_dialogue", PLACES, SCORERS)
BATCH = Ask("score_batch", PLACES, SCORERS)


def scores_of(place, engagement="engagement:1", moved=0.0):
    found = {}
    for model in (engagement, "quality:1"):
        value, percentile = value_of(place, model)
        scored = {"value": value + moved, "percentile": percentile, "model": model, "cached": model == "quality:1"}
        found[model.partition(":")[0]] = scored
    return {"scores": found, "errors": {}, "index": place.turn}


PERCENTILE_MOVED = scores_of(PLACES[0])
PERCENTILE_MOVED["scores"]["quality"]["percentile"] += 0.02


def partly_refused(place, **more):
    reply = scores_of(place, **more)
    del reply["scores"]["engagement"]
    return {**reply, "errors": {"engagement": {"code": "overloaded"}}}


def dialogue_reply(**first):
    turns = [scores_of(PLACES[0], **first), scores_of(PLACES[1])]
    means = {each: {"mean": sum(turn["scores"][each]["value"] for turn in turns) / 2, "turns": 2} for each in SCORERS}
    return {"turns": turns, "dialogue": means}


JUDGED_REPLIES = [
    (TURN, scores_of(PLACES[0]), "answered"),
    (TURN, scores_of(PLACES[0], "engagement:2"), "answered"),
    (TURN, scores_of(PLACES[0], moved=2e-6), "wrong"),
    (TURN, scores_of(PLACES[1]), "wrong"),
    (TURN, {"scores": {"engagement": scores_of(PLACES[0])["scores"]["engagement"]}, "errors": {}}, "lost"),
    (TURN, {"scores": {}, "errors": {"engagement": {"code": "overloaded"}}}, "lost"),
    (TURN, partly_refused(PLACES[0]), "refused"),
    (TURN, partly_refused(PLACES[0], moved=0.1), "wrong"),
    (TURN, {"error": {"code": "not_ready"}}, "refused"),
    (TURN, {"score": 1}, "unclear"),
    (TURN, PERCENTILE_MOVED, "wrong"),
    (BATCH, {"results": [scores_of(each) for each in PLACES]}, "answered"),
    (BATCH, {"results": [scores_of(PLACES[0])]}, "lost"),
    (BATCH, {"results": [{"error": {"code": "overloaded"}}, scores_of(PLACES[0])]}, "wrong"),
    (DIALOGUE, dialogue_reply(), "answered"),
    (DIALOGUE, {**dialogue_reply(), "turns": dialogue_reply()["turns"][:1]}, "lost"),
    (DIALOGUE, {**dialogue_reply(), "turns": 2 * dialogue_reply()["turns"]}, "wrong"),
    (DIALOGUE, {**dialogue_reply(), "dialogue": {each: {"mean": float("nan")} for each in SCORERS}}, "wrong"),
]


@pytest.mark.parametrize(("ask", "reply", "outcome"), JUDGED_REPLIES)
def test_a_wrong_value_and_an_answer_with_less_than_was_asked_are_found(ask, reply, outcome):
    assert ORACLE.judge(ask, reply).outcome == outcome


def line_of_file(at, place, **more):
    return json.dumps({"line": at + 1, **scores_of(place, **more)}).encode()


def corpus_row(_, place, **more):
    scores = scores_of(place, **more)["scores"]
    fields = {f"{name}_{field}": each[field] for name, each in scores.items() for field in each}
    return {"dialogue": str(place.dialogue), "index": place.turn, **fields}


@pytest.mark.parametrize(
    ("chosen", "moved", "broken"),
    [([0, 1], 0.0, {}), ([0], 0.0, {"missing": 1}), ([0, 0, 1], 0.0, {"duplicated": 1}), ([0, 1], 0.1, {"wrong": 2})],
)
@pytest.mark.parametrize("caller", [FILE, CORPUS])
def test_rows_that_are_missing_double_or_wrong_are_found(caller, chosen, moved, broken):
    ledger, make = FaultLog("none"), line_of_file if caller == FILE else corpus_row
    rows = [make(at, PLACES[at], moved=moved) for at in chosen]
    if caller == FILE:
        judge_file(ORACLE, [Ask("score", [each], SCORERS) for each in PLACES], rows, ledger)
    else:
        judge_corpus(ORACLE, PLACES, rows, ledger)
    counts = ledger.counts[caller]
    assert {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]} == broken
    assert bool(ledger.broken) == bool(broken)


def honest(ledger):
    ledger.ask("JavaScript")
    ledger.settle("JavaScript", Verdict("answered", is_computed=True), 0.02)
    for _ in range(9):
        ledger.ask(PLAIN)
        ledger.settle(PLAIN, Verdict("failed", "the connection was lost"))


def line_of(spoil, fault="a replica: killed"):
    ledger = FaultLog(fault)
    honest(ledger)
    spoil(ledger)
    ledger.close()
    line = {"seconds": 1.0, **ledger.as_json()}
    return {**line, "broken": [*line["broken"], *find_failures(line)]}


def fail(ledger, caller, times=1, refused=""):
    for _ in range(times):
        ledger.ask(caller)
        ledger.settle(caller, Verdict("refused", refused) if refused else Verdict("failed", "connection_failed"))


BROKEN_CLAIMS = [
    (lambda _: None, ""),
    (lambda each: each.ask("JavaScript"), "no acknowledged answer is lost"),
    (lambda each: each.count(CORPUS, "rows lost"), "no acknowledged answer is lost"),
    (lambda each: each.count(FILE, "missing", 3), "no row is missing or double"),
    (lambda each: (each.ask(RAW), each.settle(RAW, Verdict("wrong", "0.1 for 0.2"))), "no value is wrong"),
    (lambda each: (each.ask(RAW), each.settle(RAW, Verdict("unclear", "{}"))), "every error is a clear one"),
    (lambda each: fail(each, "JavaScript"), "every fault is survived as promised"),
    (lambda each: fail(each, RAW, 100), "every fault is survived as promised"),
    (lambda each: each.breaks("a switch was not made"), "every fault is survived as promised"),
]


@pytest.mark.parametrize(("spoil", "claim"), BROKEN_CLAIMS)
def test_each_claim_can_break_and_names_the_fault(spoil, claim):
    lines = [line_of(lambda _: None), line_of(spoil)]
    broken = {each.claim: each.found for each in check_lines(lines) if each.holds is False}
    assert not claim or "a replica: killed" in broken[claim]
    assert set(broken) <= {claim, "every fault is survived as promised"} if claim else not broken
