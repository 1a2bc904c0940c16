"""Answers: refused and expired are no failures; whatever nobody asked for is one."""

import json

import pytest
from turnscore_load.answers import judge_http

SCORE = {"value": 0.5}
GOOD = {"request_id": "a", "scores": {"fed": SCORE}, "errors": {}, "timing_ms": {}}


def error(code: str) -> dict[str, object]:
    return {"error": {"code": code, "message": "", "field": None, "retry_after_ms": None}, "request_id": "a"}


def with_errors(*codes: str) -> dict[str, object]:
    return {**GOOD, "errors": {str(place): error(code)["error"] for place, code in enumerate(codes)}}


REPLIES = [
    (200, None, GOOD, "answered"),
    (200, None, {"results": [GOOD, GOOD]}, "answered"),
    (200, None, {"results": [GOOD, error("deadline_exceeded")]}, "expired"),
    (200, None, {"results": [GOOD, error("overloaded")]}, "refused"),
    (200, None, {"results": [error("deadline_exceeded"), error("internal")]}, "failed"),
    (200, None, with_errors("deadline_exceeded"), "expired"),
    (200, None, with_errors("internal"), "failed"),
    (200, None, {**GOOD, "scores": {}}, "failed"),
    (200, None, {"hello": 1}, "failed"),
    (200, None, [], "failed"),
    (429, "2", error("overloaded"), "refused"),
    (429, None, error("overloaded"), "failed"),
    (429, "soon", error("overloaded"), "failed"),
    (504, None, error("deadline_exceeded"), "expired"),
    (500, None, error("internal"), "failed"),
    (503, None, error("not_ready"), "failed"),
    (400, None, error("invalid_request"), "failed"),
    (302, None, {}, "failed"),
]


@pytest.mark.parametrize(("status", "retry_after", "body", "outcome"), REPLIES)
def test_every_reply_is_judged(status: int, retry_after: str | None, body: object, outcome: str):
    answer = judge_http(status, retry_after, json.dumps(body).encode())
    assert answer.outcome == outcome
    assert bool(answer.why) == (outcome == "failed")


def test_a_refusal_carries_its_advice():
    assert judge_http(429, "2", b"{}").retry_after_seconds == 2.0


def test_a_body_that_is_no_json_is_a_failure():
    assert judge_http(200, None, b"<html>").outcome == "failed"


def test_no_reply_is_a_failure_that_says_why():
    answer = judge_http(0, None, b"", "no connection")
    assert (answer.outcome, answer.why) == ("failed", "no connection")
