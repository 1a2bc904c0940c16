"""Turns errors into replies, and counts, logs and traces each request, whichever transport it came by."""

import logging
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from pydantic import BaseModel
from turnscore_core.errors import CallerLeftError, FailedScoringError, ScoringError
from turnscore_wire import REQUEST_ID_PATTERN, ErrorReply

from turnscore_service import metrics
from turnscore_service.auth.access import ANYBODY, CALLER
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.log_setup import KEY_NAME, REQUEST_ID

Transport = Literal["http", "grpc"]
CONVERSATION = "conversation"
"""The call of a live conversation, whose time is the caller's own and is not measured."""

_LOGGER = logging.getLogger("turnscore.requests")


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to send; with an error it is that error's. None where a conversation has ended well."""

    reply: BaseModel | None
    error: ScoringError | None = None


class RequestScope:
    """One request from its start to its end: `with RequestScope(...) as scope: scope.answer = Answer(await ...)`.

    A ScoringError that leaves the block becomes the answer; any other exception is logged and becomes the answer
    `internal`. Only CallerLeftError and cancellation leave it. Counts the request once, by transport, call and code.
    """

    __slots__ = ("_call", "_runtime", "_started_at", "_tokens", "_transport", "answer", "request_id", "trace")

    def __init__(
        self, runtime: Runtime, transport: Transport, call: str, request_id: str, carrier: Mapping[str, str]
    ) -> None:
        """`carrier` has the headers, or the metadata, that may name the caller's span."""
        self._runtime, self._transport, self._call = runtime, transport, call
        self.request_id = request_id
        self.answer = Answer(None)
        self.trace = runtime.trace(transport, call, carrier)

    def __enter__(self) -> Self:
        self._started_at = time.perf_counter()
        self._tokens = REQUEST_ID.set(self.request_id), KEY_NAME.set(None), CALLER.set(ANYBODY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        code = "ok"
        is_answered = error is None or (isinstance(error, Exception) and not isinstance(error, CallerLeftError))
        if not is_answered:
            code = "departed"
        elif error is not None:
            if not isinstance(error, ScoringError):
                _LOGGER.error("unforeseen error", exc_info=error)
                error = unforeseen()
            self.answer = refuse(error, self.request_id)
            code = error.code
        self._end(code)
        request_id, key_name, caller = self._tokens
        REQUEST_ID.reset(request_id)
        KEY_NAME.reset(key_name)
        CALLER.reset(caller)
        return is_answered

    def _end(self, code: str) -> None:
        runtime, call = self._runtime, self._call
        fields: dict[str, object] = {"call": call, "code": code}
        metrics.REQUESTS.labels(self._transport, call, code).inc()
        if call != CONVERSATION:
            seconds = time.perf_counter() - self._started_at
            fields["seconds"] = round(seconds, 5)
            metrics.REQUEST_SECONDS.labels(self._transport, call).observe(seconds)
            if seconds >= runtime.slow.seconds:
                runtime.slow.note(f"{self._transport} {call}", code, seconds, self.answer.reply)
        if runtime.settings.log_requests:
            _LOGGER.info("request", extra=fields)
        if self.trace is not None:
            self.trace.end(code, self.answer.reply, self.request_id)


def take_request_id(sent: str | None) -> str:
    """The caller's request id where it is a plain word of at most 128 characters, else a fresh one."""
    return sent if sent and re.fullmatch(REQUEST_ID_PATTERN, sent) else f"{random.getrandbits(128):032x}"


def refuse(error: ScoringError, request_id: str) -> Answer:
    """The answer that carries an error."""
    return Answer(ErrorReply(error=error.detail(), request_id=request_id), error)


def unforeseen() -> FailedScoringError:
    """The error that stands for an exception, of which the caller learns nothing."""
    return FailedScoringError("an internal error occurred; the service's log has the details")
