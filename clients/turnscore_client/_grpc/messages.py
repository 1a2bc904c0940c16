"""gRPC messages: calls as protobuf, statuses as typed errors (extra `grpc`). Sends nothing."""

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from turnscore_wire import BODY_FIELD, ConversationReply, ErrorReply

from turnscore_client import _defaults
from turnscore_client._calls import Call
from turnscore_client._errors import (
    ConnectionFailedError,
    NotFoundError,
    OverloadedError,
    TooLargeError,
    TurnScoreError,
    UnexpectedReplyError,
    error_from_reply,
)
from turnscore_client._extras import needs_extra
from turnscore_client._retry import Attempts, OutOfTimeError

with needs_extra("grpc", "a gRPC client"):
    import grpc
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.message import DecodeError, Message
    from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

R = TypeVar("R", bound=BaseModel)

STREAM = "/turnscore.v1.TurnScorer/ScoreStream"
_DETAILS_KEY = "grpc-status-details-bin"
_PUSHBACK_KEY = "grpc-retry-pushback-ms"
_BEYOND_THE_TRANSPORT = "larger than max"
"""In the sentence of a message that a gRPC library did not take for its size; its status is RESOURCE_EXHAUSTED."""


class StatusError(grpc.RpcError):
    """An unsuccessful status, with the contents of the libraries' own errors."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailers: Iterable[tuple[str, str | bytes]] | None = None
    ) -> None:
        super().__init__(code, details)
        self._trailers = trailers

    def code(self) -> grpc.StatusCode:
        """The status code."""
        code: grpc.StatusCode = self.args[0]
        return code

    def details(self) -> str:
        """The status message."""
        details: str = self.args[1]
        return details

    def trailing_metadata(self) -> Any:
        """The trailers."""
        return self._trailers


def method_of(call: Call[R]) -> str:
    """The call's full name."""
    return f"/turnscore.v1.TurnScorer/{call.endpoint.rpc}"


def write_request(call: Call[R], attempts: Attempts) -> bytes:
    """The request of one attempt, which carries the time that is left."""
    request = call.request_with(attempts.deadline_ms_left)
    return write_message(request) if request is not None else turnscore_pb2.ModelsRequest().SerializeToString()


def write_message(model: BaseModel) -> bytes:
    """The message of a wire type."""
    return to_message(model).SerializeToString()


def read_message(data: bytes, reply_type: type[R]) -> R:
    """The reply in a message. Raises UnexpectedReplyError for one that is not turnscore's."""
    message_class: type[Message] = getattr(turnscore_pb2, reply_type.__name__)
    try:
        return reply_type.model_validate(to_fields(message_class.FromString(data)))
    except (DecodeError, ValidationError):
        start = data[: 4 * _defaults.BODY_START_CHARS].decode(errors="replace")[: _defaults.BODY_START_CHARS]
        message = "an answer that is not turnscore's; is something else at this address?"
        raise UnexpectedReplyError(message, body_start=start) from None


def error_of(failed: Any, address: str) -> TurnScoreError | OutOfTimeError:
    """A call's unsuccessful status, in this package's words. `failed` is what grpc or grpc.aio raised.

    If turnscore sent the status, it is the error in its details. Otherwise a gRPC library or a proxy did:
    of these UNAVAILABLE, and CANCELLED by the other side, mean that the call did not get there and may be sent again.
    """
    reported = _reported_by_the_service(failed)
    if reported is not None:
        error = error_from_reply(reported)
        error.retry_after_ms = _pushback_ms(failed) if error.retry_after_ms is None else error.retry_after_ms
        return error
    code, sentence = failed.code(), failed.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return OutOfTimeError()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return ConnectionFailedError(f"no answer from {address}: {sentence or code.name}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NotFoundError(f"the service at {address} does not know this call")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if _BEYOND_THE_TRANSPORT in sentence:
            return TooLargeError(sentence, BODY_FIELD)
        return OverloadedError(sentence or f"no room at {address}", retry_after_ms=_pushback_ms(failed))
    message = f"status {code.name} without turnscore's details; is something else at {address}?"
    return UnexpectedReplyError(message, code.value[0], sentence[: _defaults.BODY_START_CHARS])


def last_reply(failed: Any, address: str, *, is_open: bool) -> ConversationReply:
    """The status that ended a conversation as its last message, like a WebSocket's.

    Raises the error of one that was never open, and of one that broke.
    """
    reported = _reported_by_the_service(failed) if is_open else None
    if reported is None:
        raise error_of(failed, address) from failed
    return ConversationReply(error=reported.error)


def _reported_by_the_service(failed: Any) -> ErrorReply | None:
    """The error reply in the trailers, where turnscore sent the status."""
    try:
        [detail] = turnscore_pb2.Status.FromString(_trailers(failed).get(_DETAILS_KEY, b"")).details
        reply = turnscore_pb2.ErrorReply()
        if not isinstance(detail, AnyMessage) or not detail.Unpack(reply):
            return None
        return ErrorReply.model_validate(to_fields(reply))
    except (DecodeError, ValidationError, ValueError):
        return None


def _pushback_ms(failed: Any) -> int | None:
    """When to come back, in the form for gRPC's own retries (gRPC proposal A6); None for anything but a number."""
    pushback = str(_trailers(failed).get(_PUSHBACK_KEY, ""))
    return int(pushback) if pushback.isascii() and pushback.isdecimal() and len(pushback) < 10 else None


def _trailers(failed: Any) -> dict[str, Any]:
    return dict(failed.trailing_metadata() or ())
