"""The gRPC door for asyncio (extra `grpc`): one channel, its calls, its conversations."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from turnscore_wire import ConversationMessage, ConversationReply

from turnscore_client import _defaults
from turnscore_client._async.conversation import AsyncLine
from turnscore_client._calls import Call
from turnscore_client._errors import ConnectionFailedError, TurnScoreError
from turnscore_client._extras import needs_extra
from turnscore_client._grpc.channel import credentials_of, open_channel
from turnscore_client._grpc.messages import (
    STREAM,
    StatusError,
    error_of,
    last_reply,
    method_of,
    read_message,
    write_message,
    write_request,
)
from turnscore_client._retry import Attempts, OutOfTimeError
from turnscore_client._settings import GrpcClientSettings
from turnscore_client._tls import Tls

with needs_extra("grpc", "a gRPC client"):
    import grpc
    import grpc.aio

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

_OF_A_WRITE = (grpc.StatusCode.INTERNAL, "Internal error from Core")
"""The status by which grpc.aio reports a write after the end (grpcio, aio/call.pyx.pxi)."""


class AsyncGrpcDoor:
    """From the running event loop, to which its channel belongs from the first call on."""

    def __init__(self, settings: GrpcClientSettings, tls: Tls | None, channel: "grpc.aio.Channel | None") -> None:
        self._settings = settings
        self._credentials = credentials_of(tls)
        self._opened: Any = channel
        self._open_line = getattr(channel, "open_async_line", None)

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        left = attempts.seconds_left()
        if left <= 0:
            raise OutOfTimeError
        metadata = self._settings.metadata(call.request_id, call.metadata)
        ask = self._channel().unary_unary(method_of(call))
        try:
            data = await ask(write_request(call, attempts), timeout=left, metadata=metadata)
        except grpc.RpcError as failed:
            raise error_of(failed, self._settings.address) from failed
        return read_message(data, call.endpoint.reply_type)

    async def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> AsyncLine:
        """A stream for one conversation."""
        pairs = self._settings.metadata(request_id, metadata)
        if self._open_line is not None:
            line: AsyncLine = self._open_line(dict(pairs))
            return line
        return _AsyncStreamLine(self._channel().stream_stream(STREAM)(metadata=pairs), self._settings.address)

    async def close(self) -> None:
        """Closes every connection."""
        if self._opened is not None:
            await self._opened.close()

    def _channel(self) -> Any:
        if self._opened is None:
            self._opened = open_channel(grpc.aio, self._settings.address, self._credentials)
        return self._opened


class _AsyncStreamLine:
    """One ScoreStream. Cancelling a read or a write would cancel the stream, so they go on when a wait ends."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._writing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._ending: asyncio.Future[StatusError] = asyncio.get_running_loop().create_future()
        call.add_done_callback(self._take_end)
        self._is_open = False
        self._has_ended = False

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a stream that has ended it waits for nothing: `receive` reports why it ended."""
        self._writing = asyncio.ensure_future(self._write(self._writing, write_message(message)))
        await _wait_for(self._writing, seconds_left())

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        """The service's next message."""
        if self._has_ended:
            raise self._ended()
        self._reading = self._reading or asyncio.ensure_future(self._call.read())
        await _wait_for(self._reading, seconds_left())
        reading, self._reading = self._reading, None
        try:
            data = reading.result()
        except (grpc.RpcError, asyncio.CancelledError):  # the stream is cancelled by the end of its channel
            data = grpc.aio.EOF
        if data is not grpc.aio.EOF:
            self._is_open = True
            return read_message(data, ConversationReply)
        self._has_ended = True
        await _wait_for(self._ending, seconds_left())
        end = self._ending.result()
        if end.code() is grpc.StatusCode.OK:
            raise self._ended()
        return last_reply(end, self._address, is_open=self._is_open)

    async def close(self) -> None:
        """Says that nothing more comes, and waits a little for the service's end."""
        try:
            async with asyncio.timeout(_defaults.GOODBYE_SECONDS):
                if self._writing is not None:
                    await self._writing
                await self._call.done_writing()
                while not self._has_ended:
                    await self.receive(lambda: _defaults.GOODBYE_SECONDS)
        except (TimeoutError, OutOfTimeError, TurnScoreError, asyncio.InvalidStateError, grpc.RpcError):
            pass  # it ended already, or will not end by itself
        finally:
            self._call.cancel()
            left = [task for task in (self._writing, self._reading) if task is not None]
            await asyncio.gather(*left, return_exceptions=True)

    async def _write(self, before: "asyncio.Task[None] | None", data: bytes) -> None:
        if before is not None:
            await before
        try:
            await self._call.write(data)
        except (asyncio.InvalidStateError, asyncio.CancelledError, grpc.RpcError):
            return  # the stream has ended

    def _take_end(self, call: Any) -> None:
        """Takes the status at the moment it comes: a write that fails for it replaces it by one of its own, or did."""
        end = StatusError(_now(call.code()), _now(call.details()) or "", _now(call.trailing_metadata()))
        if end.args != _OF_A_WRITE and not self._ending.done():
            self._ending.set_result(end)

    def _ended(self) -> ConnectionFailedError:
        return ConnectionFailedError(f"the conversation with {self._address} has ended")


def _now(ready: "Coroutine[Any, Any, T]") -> T:
    """What a coroutine returns that waits for nothing."""
    try:
        ready.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    ready.close()
    raise RuntimeError("it waits for something")


async def _wait_for(task: "asyncio.Future[Any]", seconds: float) -> None:
    """Returns when it is done. Raises OutOfTimeError, and lets it go on."""
    done, _ = await asyncio.wait((task,), timeout=max(0.0, seconds))
    if not done:
        raise OutOfTimeError
