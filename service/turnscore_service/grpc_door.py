"""The gRPC door: decodes, calls the pipeline, encodes. Its messages are turnscore.proto's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from pydantic import BaseModel
from turnscore_wire import ConversationMessage, ConversationReply, ErrorReply, Limits
from turnscore_wire.v1 import turnscore_pb2

from turnscore_service.access import Caller, sent_key
from turnscore_service.boundary import answer, converse, take_request_id
from turnscore_service.calls import CALLS, Call, DeadlineOf
from turnscore_service.conversation import Received
from turnscore_service.deadline import Deadline
from turnscore_service.decoding import validate
from turnscore_service.errors import CallerLeftError, DeadlineExceededError, ScoringError
from turnscore_service.grpc_messages import REQUEST_ID_KEY, read_message, status_of, write_message
from turnscore_service.wiring import Runtime

SERVICE = turnscore_pb2.DESCRIPTOR.services_by_name["TurnScorer"].full_name

_SAME_MOMENT_SECONDS = 0.05
"""A caller whose deadline passes cancels the call, which may arrive a little before it passes here. Chosen."""

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
_Work: TypeAlias = Callable[[bytes, str, Caller, DeadlineOf], Awaitable[BaseModel]]
"""From the message's bytes, the request id, who calls, and what makes the request's deadline, to the reply."""
_R = TypeVar("_R")


class GrpcDoor:
    """The calls of turnscore.v1.TurnScorer. Belongs to one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server calls. Messages come and go as bytes, so that a broken one is refused and counted here."""
        handlers = {call.method: self._unary(call.name, self._scoring(call)) for call in CALLS}
        handlers["Models"] = self._unary("models", self._models)
        handlers["ScoreStream"] = self._stream()
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def wait_until_idle(self) -> None:
        """Returns when no call is in flight."""
        await self._idle.wait()

    def _scoring(self, call: Call) -> _Work:
        runtime, limits = self._runtime, self._runtime.settings.limits
        message_class = getattr(turnscore_pb2, call.request_type.__name__)

        async def work(data: bytes, request_id: str, caller: Caller, deadline_of: DeadlineOf) -> BaseModel:
            wanted = call.validate(read_message(message_class, data, limits), limits)
            return await call.run(runtime, wanted, caller, request_id, deadline_of)

        return work

    async def _models(self, data: bytes, request_id: str, caller: Caller, _: DeadlineOf) -> BaseModel:
        return self._runtime.models(request_id)

    def _unary(self, call: str, work: _Work) -> "grpc.RpcMethodHandler[Any, Any]":
        runtime, default_ms = self._runtime, self._runtime.settings.default_deadline_ms

        async def respond(data: bytes, context: Context) -> bytes:
            self._count(context)
            sent = _read_metadata(context)
            request_id = take_request_id(sent.get(REQUEST_ID_KEY))

            async def attempt() -> BaseModel:
                caller = runtime.access.admit(sent_key(sent))
                working = work(data, request_id, caller, lambda own_ms: deadline_of(context, own_ms, default_ms))
                return await _unless_too_late(context, working)

            answered = await answer("grpc", call, request_id, attempt, log=runtime.settings.log_requests)
            if isinstance(answered.reply, ErrorReply):
                await context.abort(*status_of(answered.reply))
            context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
            return write_message(answered.reply)

        return grpc.unary_unary_rpc_method_handler(respond)

    def _stream(self) -> "grpc.RpcMethodHandler[Any, Any]":
        runtime = self._runtime

        async def converse_over(_: object, context: Context) -> None:
            self._count(context)
            sent = _read_metadata(context)
            request_id = take_request_id(sent.get(REQUEST_ID_KEY))

            async def work() -> None:
                caller = runtime.access.admit(sent_key(sent))
                pipeline = runtime.pipeline()
                runtime.conversations.require_room()
                await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                stream = _MessageStream(context, runtime.settings.limits)
                await _unless_too_late(context, runtime.conversations.hold(pipeline, stream, caller, request_id))

            try:
                error = await converse("grpc", request_id, work, log=runtime.settings.log_requests)
            except CallerLeftError:
                return  # nobody is there to be told
            if error is not None:
                await context.abort(*status_of(ErrorReply(error=error.detail(), request_id=request_id)))
            context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))

        return grpc.stream_stream_rpc_method_handler(converse_over)

    def _count(self, context: Context) -> None:
        """Counts the call in flight until its status is sent: not only until its reply is ready."""
        self._in_flight += 1
        self._idle.clear()
        context.add_done_callback(self._count_done)  # type: ignore[arg-type]  # the stubs want a class

    def _count_done(self, ctx: Context) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()


class _MessageStream:
    """A conversation's channel: one message of turnscore.proto at a time."""

    def __init__(self, context: Context, limits: Limits) -> None:
        self._context = context
        self._limits = limits

    async def receive(self) -> Received | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:  # type: ignore[comparison-overlap]  # the stubs forget that read() gives it
            return None
        try:
            fields = read_message(turnscore_pb2.ConversationMessage, data, self._limits)
            return Received(validate(ConversationMessage, fields), len(data))
        except ScoringError as error:
            return Received(error, len(data))

    async def send(self, reply: ConversationReply) -> None:
        try:
            await self._context.write(write_message(reply))
        except grpc.aio.BaseError:
            raise CallerLeftError from None


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


def _read_metadata(context: Context) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
