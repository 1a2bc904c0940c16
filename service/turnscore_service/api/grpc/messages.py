"""gRPC messages: bytes into fields, replies into bytes, errors into a status with details. Calls nothing."""

from collections.abc import Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel
from turnscore_core.errors import InvalidRequestError, TooLargeError
from turnscore_wire import BODY_FIELD, ERROR_TABLE, ErrorReply, Limits
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

from turnscore_service.scheduling.loop_time import Slices
from turnscore_service.scheduling.request_checks import PARTS_PER_MESSAGE

REQUEST_ID_KEY = "x-request-id"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer in which every gRPC library looks for a google.rpc.Status."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""The trailer that says to a library's own retries when to come back (gRPC proposal A6)."""

_LISTS = ("context", "turns", "messages")
_HOLDERS = ("open", "said")
"""Of a conversation's message those that hold such lists."""
_M = TypeVar("_M", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]


def read_message(message_class: type[Message], data: bytes, limits: Limits) -> dict[str, Any]:
    """The message's fields, still to be validated. Raises TooLargeError, InvalidRequestError."""
    return _fields_of(_parse(message_class, data, limits), limits)


async def read_request(message_class: type[Message], data: bytes, limits: Limits, slices: Slices) -> dict[str, Any]:
    """As `read_message`, but a large batch takes its turns, item by item."""
    await slices.pause()
    if not slices.is_large or message_class is not turnscore_pb2.BatchRequest:
        return read_message(message_class, data, limits)
    items = []
    for item in _parse(turnscore_pb2.BatchRequest, data, limits).items:
        await slices.pause()
        items.append(_fields_of(item, limits))
    return {"items": items}


def _fields_of(message: Message, limits: Limits) -> dict[str, Any]:
    """Its fields. Of a list of turns or messages that is too long only its length: it is refused by that."""
    if isinstance(message, turnscore_pb2.ConversationMessage) and (kind := message.WhichOneof("message")) in _HOLDERS:
        return {kind: _fields_of(getattr(message, kind), limits)}
    too_long: dict[str, list[Any]] = {}
    most_parts = PARTS_PER_MESSAGE * limits.max_turns
    for name in _LISTS:
        rows: Sequence[Any] = getattr(message, name, ())
        if len(rows) > limits.max_turns:
            too_long[name] = [None] * len(rows)
        elif name == "messages" and (parts := sum(len(each.parts) for each in rows)) > most_parts:
            too_long[name] = [{"parts": [None] * parts}]
    for name in too_long:
        message.ClearField(name)
    return {**to_fields(message), **too_long}


def _parse(message_class: type[_M], data: bytes, limits: Limits) -> _M:
    if len(data) > limits.max_body_bytes:
        raise TooLargeError(
            f"the message has {len(data)} bytes; at most {limits.max_body_bytes} are allowed", field=BODY_FIELD
        )
    try:
        return message_class.FromString(data)
    except DecodeError:
        name = message_class.DESCRIPTOR.full_name
        raise InvalidRequestError(f"the message cannot be read as a {name}", field=BODY_FIELD) from None


def write_message(reply: BaseModel) -> bytes:
    """The reply as its message's bytes."""
    return to_message(reply).SerializeToString()


def status_of(reply: ErrorReply) -> tuple[grpc.StatusCode, str, Metadata]:
    """An error as the code of the one table, a sentence, and the trailers that hold everything of it."""
    error = reply.error
    code = grpc.StatusCode[ERROR_TABLE[error.code].grpc_code]
    sentence = f"{error.field}: {error.message}" if error.field else error.message
    details = AnyMessage()
    details.Pack(to_message(reply))
    status = turnscore_pb2.Status(code=code.value[0], message=sentence, details=[details])
    trailers: list[tuple[str, str | bytes]] = [
        (REQUEST_ID_KEY, reply.request_id),
        (DETAILS_KEY, status.SerializeToString()),
    ]
    if error.retry_after_ms is not None:
        trailers.append((PUSHBACK_KEY, str(error.retry_after_ms)))
    return code, sentence, tuple(trailers)
