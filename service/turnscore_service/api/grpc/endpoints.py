"""Serves the calls of turnscore.v1.TurnScorer: decodes turnscore.proto's messages, calls the pipeline, encodes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel
from turnscore_core.errors import CallerLeftError, DeadlineExceededError, InvalidRequestError, TooLargeError
from turnscore_core.scoring import Deadline
from turnscore_wire import BODY_FIELD, ERROR_TABLE, ConversationMessage, ConversationReply, ErrorReply, Limits
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

from turnscore_service.api.calls import CALLS, CONVERSATION, RequestScope, ServiceCall, take_request_id, validate
from turnscore_service.auth.access import FORWARDED_KEY, sent_key
from turnscore_service.conversations.session import Received
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.executor import OpenWork, within
from turnscore_service.scheduling.fairness import LARGE_BYTES, TimeSlice
from turnscore_service.scheduling.request_checks import PARTS_PER_MESSAGE

REQUEST_ID_KEY = "x-request-id"

_LISTS = ("context", "turns", "messages")
_HOLDERS = ("open", "messages")  # of a conversation's message those that hold such lists
_M = TypeVar("_M", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]


def read_message(message_class: type[Message], data: bytes, limits: Limits) -> dict[str, Any]:
    """The message's fields, still to be validated. Raises TooLargeError, InvalidRequestError."""
    return _fields_of(_parse(message_class, data, limits), limits)


async def read_request(message_class: type[Message], data: bytes, limits: Limits, slices: TimeSlice) -> dict[str, Any]:
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
    if isinstance(message, turnscore_pb2.ConversationMessage):
        kind = message.WhichOneof("message")
        return {kind: _fields_of(getattr(message, kind), limits)} if kind in _HOLDERS else to_fields(message)
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
        # the trailer in which every gRPC library looks for a google.rpc.Status
        ("grpc-status-details-bin", status.SerializeToString()),
    ]
    if error.retry_after_ms is not None:
        # The trailer that says to a library's own retries when to come back (gRPC proposal A6).
        trailers.append(("grpc-retry-pushback-ms", str(error.retry_after_ms)))
    return code, sentence, tuple(trailers)


SERVICE = turnscore_pb2.DESCRIPTOR.services_by_name["TurnScorer"].full_name

# A caller whose deadline passes cancels the call, which may arrive a little before it passes here.
_SAME_MOMENT_SECONDS = 0.05

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
# From the message's bytes, the request id and the call's context to the reply.
_Work: TypeAlias = Callable[[bytes, str, Context], Awaitable[BaseModel]]
_R = TypeVar("_R")


class GrpcEndpoints:
    """The calls of turnscore.v1.TurnScorer. Belongs to one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.in_flight = OpenWork()  # calls whose status has not been sent yet

    def handler(self) -> grpc.GenericRpcHandler:
        """The methods of a server. Messages come and go as bytes, so that a broken one is refused and counted here."""
        handlers = {call.name.title().replace("_", ""): self._unary(call.name, self._scoring(call)) for call in CALLS}
        handlers["Models"] = self._unary("models", self._models)
        handlers["ScoreStream"] = self._stream()
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _scoring(self, call: ServiceCall) -> _Work:
        runtime, settings = self._runtime, self._runtime.settings
        limits, message_class = settings.limits, getattr(turnscore_pb2, call.request_type.__name__)

        async def work(data: bytes, request_id: str, context: Context) -> BaseModel:
            slices = TimeSlice(runtime.cooperative, is_large=len(data) >= LARGE_BYTES)
            wanted = await call.read(await read_request(message_class, data, limits, slices), limits, slices)
            deadline = deadline_of(context, getattr(wanted, "deadline_ms", None), settings.default_deadline_ms)
            return await call.do(runtime.pipeline(), wanted, request_id, deadline)

        return work

    async def _models(self, data: bytes, request_id: str, _: Context) -> BaseModel:
        return self._runtime.models(request_id)

    def _unary(self, call: str, work: _Work) -> "grpc.RpcMethodHandler[Any, Any]":
        async def respond(_: object, context: Context) -> bytes:
            sent, request_id = self._begin(context)
            with RequestScope(self._runtime, "grpc", call, request_id, sent) as request:
                self._runtime.access.admit(*_sender_of(context, sent))
                seconds = self._runtime.settings.default_deadline_ms / 1000
                data = await _unless_too_late(context, _read_one(context, seconds))
                request.answer = await _unless_too_late(context, work(data, request_id, context))
            reply = request.answer
            assert reply is not None
            if isinstance(reply, ErrorReply):
                await context.abort(*status_of(reply))
            context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
            return write_message(reply)

        # On the wire a call of one message; the library would wait for it without end, and before keys are looked at.
        return grpc.stream_unary_rpc_method_handler(respond)

    def _stream(self) -> "grpc.RpcMethodHandler[Any, Any]":
        runtime = self._runtime

        async def converse(_: object, context: Context) -> None:
            sent, request_id = self._begin(context)
            try:
                with RequestScope(runtime, "grpc", CONVERSATION, request_id, sent) as request:
                    runtime.access.admit(*_sender_of(context, sent))
                    runtime.pipeline()  # raises what keeps it from being there
                    runtime.conversations.require_room()
                    await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                    stream = _MessageStream(context, runtime.settings.limits)
                    holding = runtime.conversations.hold(runtime.pipeline, stream, request_id, request.trace)
                    await _unless_too_late(context, holding)
            except CallerLeftError:
                return  # there is no caller to get the error
            if isinstance(reply := request.answer, ErrorReply):
                await context.abort(*status_of(reply))
            context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))

        return grpc.stream_stream_rpc_method_handler(converse)

    def _begin(self, context: Context) -> tuple[dict[str, str], str]:
        self.in_flight.begin()
        context.add_done_callback(self.in_flight.end)  # type: ignore[arg-type]  # the stubs want a class
        sent = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        return sent, take_request_id(sent.get(REQUEST_ID_KEY))


class _MessageStream:
    """A conversation's channel: one message of turnscore.proto at a time."""

    def __init__(self, context: Context, limits: Limits) -> None:
        self._context = context
        self._limits = limits

    async def receive(self) -> Received | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:  # type: ignore[comparison-overlap]  # the stubs forget that read() gives it
            return None
        return Received(len(data), partial(self._read, data))

    def _read(self, data: bytes) -> ConversationMessage:
        fields = read_message(turnscore_pb2.ConversationMessage, data, self._limits)
        return validate(ConversationMessage, fields, self._limits)

    async def send(self, reply: ConversationReply) -> None:
        try:
            await self._context.write(write_message(reply))
        except grpc.aio.BaseError:
            raise CallerLeftError from None


async def _read_one(context: Context, seconds: float) -> bytes:
    """The call's message, which has as long to come as the body of an HTTP request."""
    try:
        data = await within(seconds, context.read())
    except TimeoutError:
        raise DeadlineExceededError("the message did not arrive in time", field=BODY_FIELD) from None
    if data is grpc.aio.EOF:  # type: ignore[comparison-overlap]  # the stubs forget that read() gives it
        raise InvalidRequestError("the call ended without its message", field=BODY_FIELD)
    return data


async def _unless_too_late(context: Context, work: Awaitable[_R]) -> _R:
    """The work's result; gRPC cancels it when the caller leaves, and also when the caller's deadline passes."""
    try:
        return await work
    except asyncio.CancelledError:
        left = context.time_remaining()
        if left is not None and left < _SAME_MOMENT_SECONDS:
            raise DeadlineExceededError("the caller's deadline passed") from None
        raise


def deadline_of(context: Context, own_ms: int | None, default_ms: int) -> Deadline:
    """The earlier of the call's deadline and the request's own; the default where there is neither."""
    left = context.time_remaining()
    if left is None:
        return Deadline.after_ms(own_ms or default_ms)
    return Deadline.after_ms(min(1000 * left, own_ms or 1000 * left))


def _sender_of(context: Context, sent: Mapping[str, str]) -> tuple[str | None, str, str | None]:
    """As `sender_of` of HTTP."""
    forwarded = None
    if FORWARDED_KEY in sent:
        every = [value for key, value in context.invocation_metadata() or () if key == FORWARDED_KEY]
        forwarded = ",".join(map(str, every)) or None
    return sent_key(sent), _host_of(context.peer()), forwarded


@lru_cache(maxsize=4096)
def _host_of(peer: str) -> str:
    """The address in a peer, which gRPC writes as `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else rest
