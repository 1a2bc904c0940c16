"""The gRPC door: decodes, calls the pipeline, encodes. Its messages are turnscore.proto's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from pydantic import BaseModel
from turnscore_wire import (
    ConversationMessage,
    ConversationReply,
    DialogueRequest,
    ErrorReply,
    Limits,
    RankRequest,
    ScoreRequest,
)
from turnscore_wire.v1 import turnscore_pb2

from turnscore_service.boundary import answer, converse, take_request_id
from turnscore_service.conversation import Received
from turnscore_service.deadline import Deadline
from turnscore_service.decoding import validate, validate_batch
from turnscore_service.errors import CallerLeftError, DeadlineExceededError, ScoringError
from turnscore_service.grpc_messages import REQUEST_ID_KEY, read_message, status_of, write_message
from turnscore_service.pipeline import ScoringPipeline
from turnscore_service.wiring import Runtime

SERVICE = turnscore_pb2.DESCRIPTOR.services_by_name["TurnScorer"].full_name

_SAME_MOMENT_SECONDS = 0.05
"""A caller whose deadline passes cancels the call, which may arrive a little before it passes here. Chosen."""

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
_Work: TypeAlias = Callable[[bytes, str, Callable[[int | None], Deadline]], Awaitable[BaseModel]]
"""From the message's bytes, the request id, and what makes a deadline of the request's own, to the reply."""
_Q = TypeVar("_Q", ScoreRequest, DialogueRequest, RankRequest)
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
        calls = {
            "Score": self._unary("score", self._work(ScoreRequest, ScoringPipeline.score)),
            "ScoreBatch": self._unary("score_batch", self._score_batch),
            "ScoreDialogue": self._unary("score_dialogue", self._work(DialogueRequest, ScoringPipeline.score_dialogue)),
            "Rank": self._unary("rank", self._work(RankRequest, ScoringPipeline.rank)),
            "Models": self._unary("models", self._models),
            "ScoreStream": self._stream(),
        }
        return grpc.method_handlers_generic_handler(SERVICE, calls)

    async def wait_until_idle(self) -> None:
        """Returns when no call is in flight."""
        await self._idle.wait()

    def _work(
        self, wire_type: type[_Q], score: Callable[[ScoringPipeline, _Q, str, Deadline], Awaitable[BaseModel]]
    ) -> _Work:
        message_class = getattr(turnscore_pb2, wire_type.__name__)

        async def work(data: bytes, request_id: str, deadline_of: Callable[[int | None], Deadline]) -> BaseModel:
            wanted = validate(wire_type, read_message(message_class, data, self._runtime.settings.limits))
            return await score(self._runtime.pipeline(), wanted, request_id, deadline_of(wanted.deadline_ms))

        return work

    async def _score_batch(
        self, data: bytes, request_id: str, deadline_of: Callable[[int | None], Deadline]
    ) -> BaseModel:
        limits = self._runtime.settings.limits
        items = validate_batch(read_message(turnscore_pb2.BatchRequest, data, limits), limits)
        return await self._runtime.pipeline().score_batch(items, request_id, deadline_of(None))

    async def _models(self, data: bytes, request_id: str, _: object) -> BaseModel:
        return self._runtime.models(request_id)

    def _unary(self, call: str, work: _Work) -> "grpc.RpcMethodHandler[Any, Any]":
        default_ms = self._runtime.settings.default_deadline_ms

        async def respond(data: bytes, context: Context) -> bytes:
            self._count(context)
            request_id = _request_id(context)

            def attempt() -> Awaitable[BaseModel]:
                working = work(data, request_id, lambda own_ms: deadline_of(context, own_ms, default_ms))
                return _unless_too_late(context, working)

            answered = await answer("grpc", call, request_id, attempt, log=self._runtime.settings.log_requests)
            if isinstance(answered.reply, ErrorReply):
                await context.abort(*status_of(answered.reply))
            context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
            return write_message(answered.reply)

        return grpc.unary_unary_rpc_method_handler(respond)

    def _stream(self) -> "grpc.RpcMethodHandler[Any, Any]":
        runtime = self._runtime

        async def converse_over(_: object, context: Context) -> None:
            self._count(context)
            request_id = _request_id(context)

            async def work() -> None:
                pipeline = runtime.pipeline()
                runtime.conversations.require_room()
                await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                stream = _MessageStream(context, runtime.settings.limits)
                await _unless_too_late(context, runtime.conversations.hold(pipeline, stream, request_id))

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


def _request_id(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_KEY and isinstance(value, str):
            return take_request_id(value)
    return take_request_id(None)
