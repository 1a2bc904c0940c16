"""Defines what each call of the API takes and does, and turns what comes of it into an answer, for every transport.

A refusal names the field and repeats nothing that was sent. Each request is counted, logged and traced once.
"""

import gc
import json
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Annotated, Any, Literal, Self, TypeVar

import turnscore_wire as wire
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from turnscore_core.errors import CallerLeftError, FailedScoringError, InvalidRequestError, ScoringError, TooLargeError
from turnscore_core.scoring import Deadline
from turnscore_wire.errors import MAX_FIELD_CHARS

from turnscore_service import metrics
from turnscore_service.auth.access import ANYBODY, CALLER, Caller
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.log_setup import KEY_NAME, REQUEST_ID
from turnscore_service.scheduling.fairness import LARGE_BYTES, TimeSlice
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.request_checks import check_item_count, check_turn_counts
from turnscore_service.telemetry.recorder import CallTrace

Transport = Literal["http", "grpc"]
CONVERSATION = "conversation"  # the call of a live conversation, whose time is the caller's own and is not measured

_LOGGER = logging.getLogger("turnscore.requests")


@dataclass(slots=True, eq=False)
class RequestScope:
    """One request from its start to its end: `with RequestScope(...) as scope: scope.answer = await ...`.

    A ScoringError that leaves the block becomes the answer; any other exception is logged and becomes the answer
    `internal`. Only CallerLeftError and cancellation leave it. Counts the request once, by transport, call and code.
    """

    runtime: Runtime
    transport: Transport
    call: str
    request_id: str
    carrier: Mapping[str, str]  # the headers, or the metadata, that may name the caller's span
    answer: BaseModel | None = None  # the reply to send; none where a conversation has ended well
    trace: CallTrace | None = field(init=False)
    _started_at: float = field(init=False)
    _tokens: tuple[Token[str | None], Token[str | None], Token[Caller]] = field(init=False)

    def __enter__(self) -> Self:
        telemetry = self.runtime.telemetry
        self.trace = None if telemetry is None else telemetry.begin(self.transport, self.call, self.carrier)
        self._started_at = time.perf_counter()
        self._tokens = REQUEST_ID.set(self.request_id), KEY_NAME.set(None), CALLER.set(ANYBODY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        seconds, code = time.perf_counter() - self._started_at, "ok"
        is_answered = error is None or (isinstance(error, Exception) and not isinstance(error, CallerLeftError))
        if not is_answered:
            code = "departed"
        elif error is not None:
            if not isinstance(error, ScoringError):
                _LOGGER.error("unforeseen error", exc_info=error)
                error = FailedScoringError()
            self.answer = refuse(error, self.request_id)
            code = error.code
        runtime, call = self.runtime, self.call
        metrics.REQUESTS.labels(self.transport, call, code).inc()
        if call != CONVERSATION:
            metrics.REQUEST_SECONDS.labels(self.transport, call).observe(seconds)
            if seconds >= runtime.slow.seconds:
                runtime.slow.note(f"{self.transport} {call}", code, seconds, self.answer)
        if runtime.settings.log_requests:
            took = {} if call == CONVERSATION else {"seconds": round(seconds, 5)}
            _LOGGER.info("request", extra={"call": call, "code": code, **took})
        if self.trace is not None:
            self.trace.end(code, self.answer, self.request_id)
        request_id, key_name, caller = self._tokens
        REQUEST_ID.reset(request_id)
        KEY_NAME.reset(key_name)
        CALLER.reset(caller)
        return is_answered


def take_request_id(sent: str | None) -> str:
    """The caller's request id where it is a plain word of at most 128 characters, else a fresh one."""
    return sent if sent and re.fullmatch(wire.REQUEST_ID_PATTERN, sent) else f"{random.getrandbits(128):032x}"


def refuse(error: ScoringError, request_id: str) -> wire.ErrorReply:
    return wire.ErrorReply(error=error.detail(), request_id=request_id)


_Request = TypeVar("_Request", bound=BaseModel)


MOST_FIELDS = 64  # of one object. Chosen: as many scorers as one request may name


# In one list, from which on they are counted before they are checked. Chosen: to check this many takes under 1 ms.
_MANY_TEXTS = 1024


class _UncheckedBatch(BaseModel):
    """A batch whose items are still to be looked at one by one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    items: Annotated[list[Any], Field(min_length=1)]


def decode(kind: type[_Request], body: bytes, limits: wire.Limits | None = None) -> _Request:
    """The request in `body`. Raises InvalidRequestError for the first field that is wrong.

    Raises TooLargeError where a large body has more turns than the limits allow, before they are checked.
    """
    if len(body) >= LARGE_BYTES and (parsed := _parse_large(body, limits)) is not None:
        return validate(kind, parsed)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise _refusal(error) from None
    # Python's own parser lets lone surrogates through, so that the field they stand in can be named.
    return validate(kind, _parse(body))


async def decode_batch(body: bytes, limits: wire.Limits, slices: TimeSlice) -> list[wire.ScoreRequest | ScoringError]:
    """The items of a batch; one that is wrong is given as its error, the others are kept. A large one takes its turns.

    Raises InvalidRequestError where the body is no batch at all, TooLargeError where it has too many items.
    """
    if not slices.is_large:
        with suppress(ValidationError):
            return list(wire.BatchRequest.model_validate_json(body).items)
    await slices.pause()
    try:
        parsed = _load(body)
    except ValueError:  # no JSON, or lone surrogates, for which Python's own parser has the place
        parsed = _parse(body)
    if isinstance(parsed, dict) and len(parsed) > MOST_FIELDS:
        raise InvalidRequestError(f"an object has more than {MOST_FIELDS} fields", field=wire.BODY_FIELD)
    return await validate_batch(parsed, limits, slices)


def validate(kind: type[_Request], parsed: object, limits: wire.Limits | None = None) -> _Request:
    """As `decode`, of a request that was parsed already."""
    if limits is not None:
        check_turn_counts(parsed, limits)
    try:
        return kind.model_validate(parsed)
    except ValidationError as error:
        raise _refusal(error) from None


async def validate_batch(
    parsed: object, limits: wire.Limits, slices: TimeSlice
) -> list[wire.ScoreRequest | ScoringError]:
    """As `decode_batch`, of a batch that was parsed already."""
    batch = validate(_UncheckedBatch, parsed)
    check_item_count(len(batch.items), limits)
    found = []
    for index, item in enumerate(batch.items):
        await slices.pause()
        found.append(_validate_item(index, item, limits))
    return found


def _validate_item(index: int, item: object, limits: wire.Limits) -> wire.ScoreRequest | ScoringError:
    if where := _find_crowd(item, f"items.{index}"):
        return InvalidRequestError(f"an object has more than {MOST_FIELDS} fields", field=where)
    try:
        check_turn_counts(item, limits, f"items.{index}.")
    except TooLargeError as error:
        return error
    try:
        return wire.ScoreRequest.model_validate(item)
    except ValidationError as error:
        return _refusal(error, f"items.{index}")


def _parse_large(body: bytes, limits: wire.Limits | None) -> object:
    """A large body that has messages, parsed; None for any other.

    Refuses what takes pydantic long, only to be refused after it. That is an object with very many fields, of each of
    which it notes a fault (90,000: 170 ms of CPU), and a list that is too long (30,000 turns: 50 ms). Messages may hold
    whatever else a chatbot keeps, so they are parsed only once.
    """
    has_messages = b'"messages"' in body
    if not has_messages and body.count(b":") <= MOST_FIELDS and body.count(b'","') <= _MANY_TEXTS:
        return None
    with suppress(ValueError):  # what is no JSON is refused with its place
        parsed = _load(body)
        if limits is not None:
            check_turn_counts(parsed, limits)
        if where := _find_crowd(parsed, ""):
            message = f"an object has more than {MOST_FIELDS} fields"
            raise InvalidRequestError(message, field=where.strip(".") or wire.BODY_FIELD)
        return parsed if has_messages else None
    return None


def _load(body: bytes) -> object:
    """Parses a large body without the collector of garbage, which walks through its lists again and again as they grow.

    250,000 lists took 100 to 240 ms with it, 17 to 25 without. Raises ValueError.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return from_json(body)
    finally:
        if is_collecting:
            gc.enable()


def _find_crowd(parsed: object, path: str) -> str | None:
    """Where the first such object is, or None; looks into lists only once, as deep as wire types have fields."""
    if isinstance(parsed, list):
        for place, each in enumerate(parsed):
            if isinstance(each, dict) and len(each) > MOST_FIELDS:
                return f"{path}.{place}"
    elif isinstance(parsed, dict):
        if len(parsed) > MOST_FIELDS:
            return path or "."
        for name, each in parsed.items():
            if isinstance(each, (dict, list)) and (where := _find_crowd(each, f"{path}.{name}"[:MAX_FIELD_CHARS])):
                return where
    return None


def _parse(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidRequestError("the body is not UTF-8", field=wire.BODY_FIELD) from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply", field=wire.BODY_FIELD) from None
    except ValueError as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequestError(f"the body is not JSON{where}", field=wire.BODY_FIELD) from None


def _refusal(error: ValidationError, prefix: str = "") -> InvalidRequestError:
    field, message = wire.describe_refusal(error, prefix)
    return InvalidRequestError(message, field=field)


@dataclass(frozen=True)
class ServiceCall:
    title: str
    request_type: type[BaseModel]
    reply_type: type[BaseModel]
    # Takes what `decode` or `validate` made of the request, its id and its deadline.
    do: Callable[[ScoringPipeline, Any, str, Deadline], Awaitable[BaseModel]]
    own_errors: tuple[wire.ErrorCode, ...] = ()  # its own error codes, in addition to those of every call

    @cached_property
    def name(self) -> str:
        """The end of its path over HTTP, and its label in metrics."""
        return self.do.__name__

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (self.do.__doc__ or "").partition("\n")[0]

    async def read(self, sent: bytes | Mapping[str, Any], limits: wire.Limits, slices: TimeSlice) -> Any:
        """The request in a JSON body, or parsed already; of a batch the items, each right or wrong on its own."""
        if self.request_type is wire.BatchRequest:
            read_batch: Any = decode_batch if isinstance(sent, bytes) else validate_batch
            return await read_batch(sent, limits, slices)
        if slices.is_large:
            await slices.pause()
        read: Any = decode if isinstance(sent, bytes) else validate
        return read(self.request_type, sent, limits)


CALLS: tuple[ServiceCall, ...] = (
    ServiceCall("Score one turn", wire.ScoreRequest, wire.ScoreReply, ScoringPipeline.score),
    ServiceCall("Score several turns", wire.BatchRequest, wire.BatchReply, ScoringPipeline.score_batch),
    ServiceCall("Score a dialogue", wire.DialogueRequest, wire.DialogueReply, ScoringPipeline.score_dialogue),
    ServiceCall("Rank responses", wire.RankRequest, wire.RankReply, ScoringPipeline.rank),
    ServiceCall(
        "Compare texts",
        wire.SimilarityRequest,
        wire.SimilarityReply,
        ScoringPipeline.similarity,
        (wire.ErrorCode.NOT_FOUND,),
    ),
)
