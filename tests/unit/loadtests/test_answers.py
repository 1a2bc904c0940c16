"""The one checker of answers: refused and expired are no failures; whatever was not asked for is one."""

import json

import pytest
from turnscore_load.answers import CallAnswer, CallRecord, Stage, judge_grpc, judge_http

SCORE = {"value": 0.5}
GOOD = {"request_id": "a", "scores": {"fed": SCORE}, "errors": {}, "timing_ms": {}}


def error(code):
    return {"error": {"code": code, "message": "", "field": None, "retry_after_ms": None}, "request_id": "a"}


REPLIES = [
    (200, None, GOOD, "answered"),
    (200, None, {"results": [GOOD, error("deadline_exceeded")]}, "expired"),
    (200, None, {"results": [GOOD, error("overloaded")]}, "refused"),
    (200, None, {"candidates": [{"index": 0, "scores": {"fed": SCORE}, "errors": {}}]}, "answered"),
    (200, None, {**GOOD, "scores": {}}, "failed"),
    (429, "2", error("overloaded"), "refused"),
    (429, None, error("overloaded"), "failed"),
    (504, None, error("deadline_exceeded"), "expired"),
    (500, None, error("internal"), "failed"),
]


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


@pytest.mark.parametrize(
    ("status", "pushback", "outcome", "why"),
    [
        ("RESOURCE_EXHAUSTED", "1500", "refused", ""),
        ("RESOURCE_EXHAUSTED", None, "failed", "RESOURCE_EXHAUSTED without advice in milliseconds"),
        ("DEADLINE_EXCEEDED", None, "expired", ""),
        ("UNAVAILABLE", "1000", "failed", "UNAVAILABLE"),
    ],
)
def test_every_grpc_error_is_judged(status, pushback, outcome, why):
    answer = judge_grpc(status, pushback)
    assert (answer.outcome, answer.why) == (outcome, why)


def call(outcome, took_ms, done_at=1.0):
    at = done_at - took_ms / 1000
    return CallRecord(due_at=at, sent_at=at, done_at=done_at, answer=CallAnswer(outcome=outcome))


def test_goodput_counts_complete_answers_in_time_within_the_stage():
    calls = [call("answered", 100), call("answered", 100), call("answered", 600), call("expired", 1),
             call("answered", 100, done_at=2.1), call("refused", 1)]  # fmt: skip
    assert Stage(calls, began_at=0.0, seconds=2.0).goodput(500) == 1.0
