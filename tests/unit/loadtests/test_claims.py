"""Answers are judged, and each claim and budget can be broken, by made-up runs."""

import json
from dataclasses import replace

import pytest
from turnscore_load.answers import CallAnswer, CallRecord, Stage, judge_grpc, judge_http
from turnscore_load.sampling import ProcessSample
from turnscore_load.scenarios import overload
from turnscore_load.users.budgets import BUDGETS, SHAPES, Budget, Measured, read_budgets

SCORE = {"value": 0.5}
GOOD = {"request_id": "a", "scores": {"fed": SCORE}, "errors": {}, "timing_ms": {}}


def error(code):
    return {"error": {"code": code, "message": "", "field": None, "retry_after_ms": None}, "request_id": "a"}


REPLIES = [
    (200, None, GOOD, "answered"), (200, None, {"results": [GOOD, error("deadline_exceeded")]}, "expired"),
    (200, None, {"results": [GOOD, error("overloaded")]}, "refused"),
    (200, None, {"candidates": [{"index": 0, "scores": {"fed": SCORE}, "errors": {}}]}, "answered"),
    (200, None, {**GOOD, "scores": {}}, "failed"), (429, "2", error("overloaded"), "refused"),
    (429, None, error("overloaded"), "failed"), (504, None, error("deadline_exceeded"), "expired"),
    (500, None, error("internal"), "failed"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "retry_after", "body", "outcome"), REPLIES)
def test_every_reply_is_judged(status, retry_after, body, outcome):
    answer = judge_http(status, retry_after, json.dumps(body).encode())
    assert answer.outcome == outcome
    assert bool(answer.why) == (outcome == "failed")


def test_a_refusal_carries_its_advice_in_milliseconds_where_the_body_has_it():
    assert judge_http(429, "2", b"{}").retry_after_seconds == 2.0
    body = json.dumps({"error": {"code": "overloaded", "retry_after_ms": 250}}).encode()
    assert judge_http(429, "1", body).retry_after_seconds == 0.25
    assert judge_grpc("RESOURCE_EXHAUSTED", "1500").retry_after_seconds == 1.5


GRPC_ERRORS = [
    ("RESOURCE_EXHAUSTED", "1500", "refused", ""),
    ("RESOURCE_EXHAUSTED", None, "failed", "RESOURCE_EXHAUSTED without advice in milliseconds"),
    ("DEADLINE_EXCEEDED", None, "expired", ""),
    ("UNAVAILABLE", "1000", "failed", "UNAVAILABLE"),
]


@pytest.mark.parametrize(("status", "pushback", "outcome", "why"), GRPC_ERRORS)
def test_every_grpc_error_is_judged(status, pushback, outcome, why):
    answer = judge_grpc(status, pushback)
    assert (answer.outcome, answer.why) == (outcome, why)


MIB = 2**20


def failed(checks):
    return [each.claim for each in checks if each.holds is False]


def calls(count, seconds, took_ms, outcome="answered", why="", late_ms=0):
    """Evenly over that many seconds from 0 on, the last one done when they are over."""
    answer = CallAnswer(outcome=outcome, why=why)
    done = [seconds * (number + 1) / count for number in range(count)]
    return [
        CallRecord(due_at=at - took_ms / 1000, sent_at=at - (took_ms - late_ms) / 1000, done_at=at, answer=answer)
        for at in done
    ]


OVERLOADED = [*calls(19 * 60, 60, 800), *calls(60, 60, 1000, "expired"), *calls(180 * 60, 60, 5, "refused")]


def samples(**late):
    """Of a run of 67 seconds; `late` is what differs after 40."""
    usual = {"rss_bytes": 500 * MIB, "handles": 100, "threads": 20}
    return [ProcessSample(seconds=second / 2, **{**usual, **(late if second > 80 else {})}) for second in range(134)]


def overload_run(more=(), **change):
    """Peak 20 a second; then 200 a second for 60 s, of which 19 are answered, 1 expires and the rest is refused."""
    run = overload.OverloadRun(
        normal=Stage(calls(100, 5, 50), 0, 5),
        search={clients: Stage(calls(6 * min(20, 10 * clients), 6, 100), 0, 6) for clients in (1, 2, 4)},
        peak_clients=2, peak=Stage(calls(480, 24, 100), 0, 24), overload=Stage([*OVERLOADED, *more], 0, 60),
        recovery=Stage([*calls(10, 0.5, 900), *calls(140, 7, 50)[10:]], 0, 7), samples=samples(),
    )  # fmt: skip
    return replace(run, **change)


OVERLOAD = overload.Overload()


def test_an_honest_overload_keeps_every_claim():
    run = overload_run(samples=samples(handles=900))  # connections are the generator's
    assert failed(OVERLOAD.checks(run)) == []
    [text] = OVERLOAD.report(run)
    assert "| 200 a second, open loop | 19.0 | 1140 | 10800 | 60 | 0 | 800 | 800 | 5 |" in text


BROKEN_CLAIMS = [
    (overload_run(overload=Stage(calls(17 * 60, 60, 800), 0, 60)), "goodput"),
    (overload_run(calls(30, 60, 1500)), "p99 of the accepted"),
    (overload_run(calls(1, 60, 5, "failed", "status 503")), "every request answered"),
    (overload_run(samples=samples(rss_bytes=520 * MIB)), "memory flat"),
    (overload_run(recovery=Stage([*calls(100, 7, 50), *calls(1, 7, 5, "refused")], 0, 7)), "normal latency"),
    (overload_run(calls(200, 60, 900, "refused", late_ms=400)), "the generator kept up"),
]


@pytest.mark.parametrize(("run", "claim"), BROKEN_CLAIMS)
def test_each_claim_of_an_overload_can_break(run, claim):
    broken = failed(OVERLOAD.checks(run))
    assert any(each.startswith(claim) for each in broken)
    assert len(broken) <= 2  # an answer that is late is neither goodput nor in time


BUDGET = Budget(
    p50_ms=10, p95_ms=20, p99_ms=30, max_failed_share=0.01, max_refused_share=0.02, max_expired_share=0.03,
    min_answered_per_second=9,
)  # fmt: skip
KEPT = Measured(kind="flood", seconds=10, answered=94, failed=1, refused=2, expired=3, p50_ms=10, p95_ms=20, p99_ms=30)


def test_a_run_exactly_within_its_budget_breaks_nothing():
    assert BUDGET.broken_by(KEPT) == []


OVERRUNS = [
    ({"p50_ms": 11}, "p50"), ({"p95_ms": 21}, "p95"), ({"p99_ms": 31}, "p99"),
    ({"failed": 2, "refused": 1}, "failed"), ({"refused": 3, "expired": 2}, "refused"),
    ({"expired": 4, "refused": 1}, "expired"), ({"seconds": 11}, "per second"), ({"answered": 0}, "not one"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "word"), OVERRUNS)
def test_each_budget_is_broken_alone(change, word):
    [sentence] = BUDGET.broken_by(replace(KEPT, **change))
    assert word in sentence
    assert sentence.startswith("flood: ")


def test_every_shape_has_a_budget_for_every_kind_of_user():
    budgets = read_budgets(BUDGETS)
    assert set(budgets) == set(SHAPES)
    assert all(set(kinds) == {"conversation", "flood", "batch", "grpc", "stream"} for kinds in budgets.values())
