"""The transports over gRPC (extra `grpc`): channels, messages, statuses as typed errors, conversations."""

import asyncio
import queue
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from turnscore_wire import BODY_FIELD, ConversationMessage, ConversationReply, ErrorReply

from turnscore_client import _defaults, _errors
from turnscore_client._calls import Call
from turnscore_client._options import Tls
from turnscore_client._retry import Attempts, OutOfTimeError
from turnscore_client._settings import USER_AGENT, ClientSetup, load_authorities, load_own_pair
from turnscore_client._sync import run_now

R = TypeVar("R", bound=BaseModel)

T = TypeVar("T")

with _errors.needs_extra("grpc", "a gRPC client"):
    import grpc
    import grpc.aio
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.message import DecodeError, Message
    from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

# gRPC's own options (grpc/impl/channel_arg_names.h).
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.enable_retries", 0),  # ours know the call's deadline and the service's own hints
    # Calls take turns among all addresses of a name; with one address this changes nothing.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.max_receive_message_length", _defaults.MAX_REPLY_BYTES),
    ("grpc.keepalive_time_ms", round(1000 * _defaults.KEEPALIVE_SECONDS)),
    ("grpc.keepalive_timeout_ms", round(1000 * _defaults.KEEPALIVE_TIMEOUT_SECONDS)),
    # The channel comes back from a lost connection at the pace at which calls are tried again.
    ("grpc.initial_reconnect_backoff_ms", round(1000 * _defaults.FIRST_DELAY_SECONDS)),
    ("grpc.min_reconnect_backoff_ms", round(1000 * _defaults.CONNECT_TIMEOUT_SECONDS)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * _defaults.LONGEST_DELAY_SECONDS)),
]


def open_channel(grpc_or_aio: Any, address: str, credentials: "grpc.ChannelCredentials | None") -> Any:
    """A channel of either module, `grpc` or `grpc.aio`; it connects with its first call."""
    if credentials is None:
        return grpc_or_aio.insecure_channel(address, options=OPTIONS)
    return grpc_or_aio.secure_channel(address, credentials, options=OPTIONS)


def credentials_of(tls: Tls | None) -> "grpc.ChannelCredentials | None":
    """The credentials of these files. Raises ValueError for files that cannot be read, or do not fit together."""
    if tls is None:
        return None
    given: dict[str, bytes] = {}
    checked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca_file is not None:
        load_authorities(checked, tls.ca_file)
        given["root_certificates"] = Path(tls.ca_file).read_bytes()
    if tls.cert_file is not None and tls.key_file is not None:
        load_own_pair(checked, tls.cert_file, tls.key_file)
        given["private_key"] = Path(tls.key_file).read_bytes()
        given["certificate_chain"] = Path(tls.cert_file).read_bytes()
    return grpc.ssl_channel_credentials(**given)


STREAM = "/turnscore.v1.TurnScorer/ScoreStream"


def status_error(
    code: grpc.StatusCode, details: str, trailers: Iterable[tuple[str, str | bytes]] = ()
) -> grpc.aio.AioRpcError:
    """An unsuccessful status that no library raised."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details)


def write_request(call: Call[R], attempts: Attempts) -> bytes:
    """The request of one attempt, which carries the time that is left."""
    request = call.request_with(attempts.deadline_ms_left)
    return write_message(request) if request is not None else turnscore_pb2.ModelsRequest().SerializeToString()


def write_message(model: BaseModel) -> bytes:
    return to_message(model).SerializeToString()


def read_message(data: bytes, reply_type: type[R]) -> R:
    """The reply in a message. Raises UnexpectedReplyError for one that is not turnscore's."""
    message_class: type[Message] = getattr(turnscore_pb2, reply_type.__name__)
    try:
        return reply_type.model_validate(to_fields(message_class.FromString(data)))
    except (DecodeError, ValidationError):
        message = "an answer that is not turnscore's; is something else at this address?"
        raise _errors.UnexpectedReplyError(message, body_start=_errors.start_of(data)) from None


def error_of(failed: Any, address: str) -> _errors.TurnScoreError | OutOfTimeError:
    """A call's unsuccessful status, in this package's words. `failed` is what grpc or grpc.aio raised.

    If turnscore sent the status, it is the error in its details. Otherwise a gRPC library or a proxy did:
    of these UNAVAILABLE, and CANCELLED by the other side, mean that the call did not get there and may be sent again.
    """
    reported = _reported_by_the_service(failed)
    if reported is not None:
        error = _errors.error_from_reply(reported)
        error.retry_after_ms = _pushback_ms(failed) if error.retry_after_ms is None else error.retry_after_ms
        return error
    code, sentence = failed.code(), failed.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return OutOfTimeError()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return _errors.ConnectionFailedError(f"no answer from {address}: {sentence or code.name}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return _errors.NotFoundError(f"the service at {address} does not know this call")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # In the sentence of a message that a gRPC library did not take for its size; its status is RESOURCE_EXHAUSTED.
        if "larger than max" in sentence:
            return _errors.TooLargeError(sentence, BODY_FIELD)
        return _errors.OverloadedError(sentence or f"no room at {address}", retry_after_ms=_pushback_ms(failed))
    message = f"status {code.name} without turnscore's details; is something else at {address}?"
    return _errors.UnexpectedReplyError(message, code.value[0], sentence[: _defaults.BODY_START_CHARS])


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
        [detail] = turnscore_pb2.Status.FromString(_trailers(failed).get("grpc-status-details-bin", b"")).details
        reply = turnscore_pb2.ErrorReply()
        if not isinstance(detail, AnyMessage) or not detail.Unpack(reply):
            return None
        return ErrorReply.model_validate(to_fields(reply))
    except (DecodeError, ValidationError, ValueError):
        return None


def _pushback_ms(failed: Any) -> int | None:
    """When to come back, in the form for gRPC's own retries (gRPC proposal A6); None for anything but a number."""
    pushback = str(_trailers(failed).get("grpc-retry-pushback-ms", ""))
    return int(pushback) if pushback.isascii() and pushback.isdecimal() and len(pushback) < 10 else None


def _trailers(failed: Any) -> dict[str, Any]:
    return dict(failed.trailing_metadata() or ())


class _GrpcStream:
    """One ScoreStream of a thread. gRPC reads without a timeout, so a thread reads and queues what comes."""

    def __init__(self, channel: Any, metadata: tuple[tuple[str, str], ...], address: str) -> None:
        self._address = address
        self._is_open = False
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[bytes | grpc.RpcError | None] = queue.SimpleQueue()
        self._call = channel.stream_stream(STREAM)(self._messages(), metadata=metadata)
        self._reading = threading.Thread(target=self._read, name="turnscore-conversation", daemon=True)
        self._reading.start()

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a stream that has ended it waits for nothing: `receive` reports why it ended."""
        self._outgoing.put(write_message(message))

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        try:
            received = self._incoming.get(timeout=max(0.0, seconds_left()))
        except queue.Empty:
            raise OutOfTimeError from None
        if isinstance(received, bytes):
            self._is_open = True
            return read_message(received, ConversationReply)
        self._incoming.put(None)  # for a caller that asks again
        if received is None:
            raise _errors.ConnectionFailedError(f"the conversation with {self._address} has ended")
        return last_reply(received, self._address, is_open=self._is_open)

    async def close(self) -> None:
        self._outgoing.put(None)
        self._reading.join(_defaults.GOODBYE_SECONDS)
        self._call.cancel()
        self._reading.join()

    def _messages(self) -> Iterator[bytes]:
        return iter(self._outgoing.get, None)

    def _read(self) -> None:
        end: grpc.RpcError | None = None
        try:
            for data in self._call:
                self._incoming.put(data)
        except grpc.RpcError as failed:
            end = failed
        self._incoming.put(end)
        self._outgoing.put(None)  # ends the thread in which gRPC waits for what is to be sent


# The status by which grpc.aio reports a write after the end (grpcio, aio/call.pyx.pxi).
_OF_A_WRITE = (grpc.StatusCode.INTERNAL, "Internal error from Core")


class AsyncGrpcTransport:
    """From the running event loop, to which its channel belongs from the first call on."""

    _library: Any = grpc.aio

    def __init__(self, settings: ClientSetup, tls: Tls | None, channel: Any) -> None:
        self._settings = settings
        self._credentials = credentials_of(tls)
        self._opened = channel
        self._open_stream = getattr(channel, "open_stream", None)  # a mock's own

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        left = attempts.check_time()
        metadata = tuple(self._settings.own(call.request_id, call.metadata).items())
        ask = self._channel().unary_unary(f"/turnscore.v1.TurnScorer/{call.endpoint.rpc}")
        try:
            data = await self._result_of(ask(write_request(call, attempts), timeout=left, metadata=metadata))
        except grpc.RpcError as failed:
            raise error_of(failed, self._settings.address) from failed
        return read_message(data, call.endpoint.reply_type)

    async def open_stream(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Any:
        own = self._settings.own(request_id, metadata)
        return self._stream(tuple(own.items())) if self._open_stream is None else self._open_stream(own)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    def _channel(self) -> Any:
        if self._opened is None:
            self._opened = open_channel(self._library, self._settings.address, self._credentials)
        return self._opened

    async def _result_of(self, asked: Any) -> Any:
        return await asked

    def _stream(self, metadata: Any) -> Any:
        return _AsyncGrpcStream(self._channel().stream_stream(STREAM)(metadata=metadata), self._settings.address)


class GrpcTransport(AsyncGrpcTransport):
    """The same from the calling thread: its coroutines block it, and never wait."""

    _library = grpc

    def __init__(self, settings: ClientSetup, tls: Tls | None, channel: Any) -> None:
        super().__init__(settings, tls, channel)
        self._channel()  # before there are several threads

    async def close(self) -> None:
        self._opened.close()

    async def _result_of(self, asked: Any) -> Any:
        return asked

    def _stream(self, metadata: Any) -> Any:
        return _GrpcStream(self._channel(), metadata, self._settings.address)


class _AsyncGrpcStream:
    """One ScoreStream. Cancelling a read or a write would cancel the stream, so they go on when a wait ends."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._writing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._ending: asyncio.Future[grpc.aio.AioRpcError] = asyncio.get_running_loop().create_future()
        call.add_done_callback(self._take_end)
        self._is_open = False
        self._has_ended = False

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a stream that has ended it waits for nothing: `receive` reports why it ended."""
        self._writing = asyncio.ensure_future(self._write(self._writing, write_message(message)))
        await _wait_for(self._writing, seconds_left())

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
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
        try:
            async with asyncio.timeout(_defaults.GOODBYE_SECONDS):
                if self._writing is not None:
                    await self._writing
                await self._call.done_writing()
                while not self._has_ended:
                    await self.receive(lambda: _defaults.GOODBYE_SECONDS)
        except (TimeoutError, OutOfTimeError, _errors.TurnScoreError, asyncio.InvalidStateError, grpc.RpcError):
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
        code, details = run_now(call.code()), run_now(call.details()) or ""
        end = status_error(code, details, run_now(call.trailing_metadata()) or ())
        if (code, details) != _OF_A_WRITE and not self._ending.done():
            self._ending.set_result(end)

    def _ended(self) -> _errors.ConnectionFailedError:
        return _errors.ConnectionFailedError(f"the conversation with {self._address} has ended")


async def _wait_for(task: "asyncio.Future[Any]", seconds: float) -> None:
    """Returns when it is done. Raises OutOfTimeError, and lets it go on."""
    done, _ = await asyncio.wait((task,), timeout=max(0.0, seconds))
    if not done:
        raise OutOfTimeError
