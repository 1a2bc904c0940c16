"""The boundary: the one place where errors become replies and where requests are counted, whatever the door."""

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from turnscore_core.errors import CallerLeftError, FailedScoringError, ScoringError
from turnscore_wire import REQUEST_ID_PATTERN, ErrorCode, ErrorReply

from turnscore_service import metrics
from turnscore_service.auth.access import ANYBODY, CALLER
from turnscore_service.log_setup import KEY_NAME, REQUEST_ID
from turnscore_service.scheduling.slow_requests import SlowLog
from turnscore_service.telemetry.recorder import CallTrace

Door = Literal["http", "grpc"]

_LOGGER = logging.getLogger("turnscore.requests")


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply that a door sends, or the error in its place."""

    reply: BaseModel
    code: ErrorCode | None = None
    retry_after_ms: int | None = None


def take_request_id(sent: str | None) -> str:
    """The caller's request id where it is a plain word of at most 128 characters, else a fresh one."""
    return sent if sent and re.fullmatch(REQUEST_ID_PATTERN, sent) else f"{random.getrandbits(128):032x}"


async def answer(
    door: Door,
    call: str,
    request_id: str,
    work: Callable[[], Awaitable[BaseModel]],
    *,
    log: bool = False,
    slow: SlowLog | None = None,
    trace: CallTrace | None = None,
) -> Answer:
    """Does the work of one request; raises nothing but CallerLeftError, when there is nobody to answer.

    Counts the request once, by door, call and code. An unforeseen exception is logged and reported as `internal`.
    """
    reply: BaseModel | None = None
    started_at = time.perf_counter()
    token, key_token, caller_token = REQUEST_ID.set(request_id), KEY_NAME.set(None), CALLER.set(ANYBODY)
    code = "departed"
    try:
        result = await _attempt(work, request_id)
        code, reply = result.code or "ok", result.reply
    finally:
        seconds = time.perf_counter() - started_at
        metrics.REQUESTS.labels(door, call, code).inc()
        metrics.REQUEST_SECONDS.labels(door, call).observe(seconds)
        if log:
            _LOGGER.info("request", extra={"call": call, "code": code, "seconds": round(seconds, 5)})
        if slow is not None and seconds >= slow.seconds:
            slow.note(f"{door} {call}", code, seconds, reply)
        if trace is not None:
            trace.end(code, reply, request_id)
        REQUEST_ID.reset(token)
        KEY_NAME.reset(key_token)
        CALLER.reset(caller_token)
    return result


async def converse(
    door: Door,
    request_id: str,
    work: Callable[[], Awaitable[None]],
    *,
    log: bool = False,
    trace: CallTrace | None = None,
) -> ScoringError | None:
    """Holds one conversation and returns the error that ended it, if one did; raises nothing but CallerLeftError.

    Counts it once, when it ends. An unforeseen exception is logged and reported as `internal`.
    """
    token, key_token, caller_token = REQUEST_ID.set(request_id), KEY_NAME.set(None), CALLER.set(ANYBODY)
    code = "departed"
    ended_by: ScoringError | None = None
    try:
        await work()
        code = "ok"
    except ScoringError as error:
        code, ended_by = error.code, error
    except CallerLeftError:
        raise
    except Exception:
        _LOGGER.exception("unforeseen error")
        ended_by = FailedScoringError("something failed inside turnscore; its log says what")
        code = ended_by.code
    finally:
        metrics.REQUESTS.labels(door, "conversation", code).inc()
        if log:
            _LOGGER.info("request", extra={"call": "conversation", "code": code})
        if trace is not None:
            trace.end(code, None, request_id)
        REQUEST_ID.reset(token)
        KEY_NAME.reset(key_token)
        CALLER.reset(caller_token)
    return ended_by


def refuse(error: ScoringError, request_id: str) -> Answer:
    """The answer that carries an error."""
    reply = ErrorReply(error=error.detail(), request_id=request_id)
    return Answer(reply, error.code, error.retry_after_ms)


def shed(door: Door, call: str, error: ScoringError, request_id: str) -> Answer:
    """The answer to a request that is refused before it is decoded; counts it."""
    metrics.REQUESTS.labels(door, call, error.code).inc()
    metrics.SHED.labels(door, call).inc()
    return refuse(error, request_id)


async def _attempt(work: Callable[[], Awaitable[BaseModel]], request_id: str) -> Answer:
    try:
        return Answer(await work())
    except ScoringError as error:
        return refuse(error, request_id)
    except CallerLeftError:
        raise
    except Exception:
        _LOGGER.exception("unforeseen error")
        return refuse(FailedScoringError("something failed inside turnscore; its log says what"), request_id)
