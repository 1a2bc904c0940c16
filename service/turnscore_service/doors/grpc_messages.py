"""gRPC messages: bytes into fields, replies into bytes, errors into a status with details. Calls nothing."""

from typing import Any, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel
from turnscore_wire import BODY_FIELD, ERROR_TABLE, ErrorReply, Limits
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

from turnscore_service.errors import InvalidRequestError, TooLargeError
from turnscore_service.path.loop_time import Slices

REQUEST_ID_KEY = "x-request-id"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer in which every gRPC library looks for a google.rpc.Status."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""The trailer that says to a library's own retries when to come back (gRPC proposal A6)."""

_M = TypeVar("_M", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]


def read_message(message_class: type[Message], data: bytes, limits: Limits) -> dict[str, Any]:
    """The message's fields, still to be validated. Raises TooLargeError, InvalidRequestError."""
    return to_fields(_parse(message_class, data, limits))


async def read_request(message_class: type[Message], data: bytes, limits: Limits, slices: Slices) -> dict[str, Any]:
    """As `read_message`, but a large batch takes its turns, item by item."""
    await slices.pause()
    if not slices.is_large or message_class is not turnscore_pb2.BatchRequest:
        return read_message(message_class, data, limits)
    items = []
    for item in _parse(turnscore_pb2.BatchRequest, data, limits).items:
        await slices.pause()
        items.append(to_fields(item))
    return {"items": items}


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
