"""Turns work into answers and errors into replies; counts, logs and traces each request of every transport."""

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from turnscore_core.errors import CallerLeftError, FailedScoringError, ScoringError
from turnscore_wire import REQUEST_ID_PATTERN, ErrorReply

from turnscore_service import metrics
from turnscore_service.auth.access import ANYBODY, CALLER
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.log_setup import KEY_NAME, REQUEST_ID
from turnscore_service.telemetry.recorder import CallTrace

Transport = Literal["http", "grpc"]
CONVERSATION = "conversation"
"""The call of a live conversation, whose time is the caller's own and is not measured."""

_LOGGER = logging.getLogger("turnscore.requests")


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to send; with an error it is that error's. None where a conversation has ended well."""

    reply: BaseModel | None
    error: ScoringError | None = None


def take_request_id(sent: str | None) -> str:
    """The caller's request id where it is a plain word of at most 128 characters, else a fresh one."""
    return sent if sent and re.fullmatch(REQUEST_ID_PATTERN, sent) else f"{random.getrandbits(128):032x}"


async def answer(
    runtime: Runtime,
    transport: Transport,
    call: str,
    request_id: str,
    work: Callable[[], Awaitable[BaseModel | None]],
    trace: CallTrace | None,
) -> Answer:
    """Does the work of one request; raises nothing but CallerLeftError, when the caller has left.

    Counts the request once, by transport, call and code. An unforeseen exception is logged and reported as `internal`.
    """
    reply: BaseModel | None = None
    started_at = time.perf_counter()
    token, key_token, caller_token = REQUEST_ID.set(request_id), KEY_NAME.set(None), CALLER.set(ANYBODY)
    code = "departed"
    try:
        try:
            reply = await work()
            code = "ok"
            return Answer(reply)
        except CallerLeftError:
            raise
        except ScoringError as error:
            refused = refuse(error, request_id)
        except Exception:
            _LOGGER.exception("unforeseen error")
            refused = refuse(unforeseen(), request_id)
        assert refused.error is not None
        code, reply = refused.error.code, refused.reply
        return refused
    finally:
        seconds = time.perf_counter() - started_at
        metrics.REQUESTS.labels(transport, call, code).inc()
        said: dict[str, object] = {"call": call, "code": code}
        if call != CONVERSATION:
            said["seconds"] = round(seconds, 5)
            metrics.REQUEST_SECONDS.labels(transport, call).observe(seconds)
            if seconds >= runtime.slow.seconds:
                runtime.slow.note(f"{transport} {call}", code, seconds, reply)
        if runtime.settings.log_requests:
            _LOGGER.info("request", extra=said)
        if trace is not None:
            trace.end(code, reply, request_id)
        REQUEST_ID.reset(token)
        KEY_NAME.reset(key_token)
        CALLER.reset(caller_token)


def refuse(error: ScoringError, request_id: str) -> Answer:
    """The answer that carries an error."""
    return Answer(ErrorReply(error=error.detail(), request_id=request_id), error)


def unforeseen() -> FailedScoringError:
    """The error that stands for an exception, of which the caller learns nothing."""
    return FailedScoringError("something failed inside turnscore; its log says what")
