"""Answers: what became of a call, the same for every door. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from turnscore_wire import ERROR_TABLE, ErrorCode

Outcome = Literal["answered", "refused", "expired", "failed"]

REFUSED_STATUS = ERROR_TABLE[ErrorCode.OVERLOADED].http_status
EXPIRED_STATUS = ERROR_TABLE[ErrorCode.DEADLINE_EXCEEDED].http_status

REFUSED_GRPC_STATUS = ERROR_TABLE[ErrorCode.OVERLOADED].grpc_code
EXPIRED_GRPC_STATUS = ERROR_TABLE[ErrorCode.DEADLINE_EXCEEDED].grpc_code

_HONEST: Mapping[str, Outcome] = {ErrorCode.OVERLOADED: "refused", ErrorCode.DEADLINE_EXCEEDED: "expired"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one call.

    answered: every score that was asked for. refused: no room, with advice when to come again. expired: the deadline
    passed, for all of it or a part. failed: anything else, the connection included; `why` says what.
    """

    outcome: Outcome
    size: int = 0
    why: str = ""
    retry_after_seconds: float | None = None


def judge_http(status: int, retry_after: str | None, body: bytes, why: str = "") -> Answer:
    """The answer that an HTTP reply is; status 0 stands for none, and `why` says why there was none."""
    if status == 200:
        return _judge_reply(body)
    if status == REFUSED_STATUS:
        if retry_after is None or not retry_after.isdecimal():
            return Answer(outcome="failed", size=len(body), why="429 without a Retry-After in seconds")
        return Answer(outcome="refused", size=len(body), retry_after_seconds=float(retry_after))
    if status == EXPIRED_STATUS:
        return Answer(outcome="expired", size=len(body))
    return Answer(outcome="failed", size=len(body), why=why or f"status {status}")


def judge_grpc(status: str, reply: Mapping[str, Any], size: int, pushback: str | None = None) -> Answer:
    """The answer that a gRPC reply is: the name of its status, its fields, its bytes, and the advice in its trailers.

    A deadline that no service reported, since none answered, is the status DEADLINE_EXCEEDED too: name it otherwise.
    """
    if status == "OK":
        return _judge_fields(reply, size, "OK")
    if status == REFUSED_GRPC_STATUS:
        if pushback is None or not pushback.isdecimal():
            return Answer(outcome="failed", size=size, why=f"{status} without advice in milliseconds")
        return Answer(outcome="refused", size=size, retry_after_seconds=int(pushback) / 1000)
    if status == EXPIRED_GRPC_STATUS:
        return Answer(outcome="expired", size=size)
    return Answer(outcome="failed", size=size, why=status)


def _judge_reply(body: bytes) -> Answer:
    try:
        reply = json.loads(body)
    except ValueError:
        reply = None
    return _judge_fields(reply, len(body), "200")


def _judge_fields(reply: Any, size: int, status: str) -> Answer:
    try:
        codes = set(_error_codes(reply))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Answer(outcome="failed", size=size, why=f"{status} with a body that is no reply")
    if wrong := sorted(codes - set(_HONEST)):
        return Answer(outcome="failed", size=size, why=f"{status} with {', '.join(wrong)} inside")
    outcomes = {_HONEST[code] for code in codes}
    return Answer(outcome="expired" if "expired" in outcomes else "refused" if outcomes else "answered", size=size)


def _error_codes(reply: Any) -> Iterator[str]:
    """The codes of everything that was not scored, of a reply to one item or to several."""
    if "results" in reply:
        for result in reply["results"]:
            yield from _error_codes(result)
    elif "error" in reply:
        yield reply["error"]["code"]
    else:
        errors = reply.get("errors", {})  # a gRPC message without any has no such field
        yield from (error["code"] for error in errors.values())
        if not reply.get("scores") and not errors:
            raise ValueError("neither a score nor an error")
