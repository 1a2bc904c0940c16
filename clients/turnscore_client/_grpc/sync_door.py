"""The gRPC door for threads (extra `grpc`): one channel, its calls, its conversations."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from turnscore_wire import ConversationMessage, ConversationReply

from turnscore_client import _defaults
from turnscore_client._calls import Call
from turnscore_client._errors import ConnectionFailedError
from turnscore_client._extras import needs_extra
from turnscore_client._grpc.channel import credentials_of, open_channel
from turnscore_client._grpc.messages import (
    STREAM,
    error_of,
    last_reply,
    method_of,
    read_message,
    write_message,
    write_request,
)
from turnscore_client._retry import Attempts, OutOfTimeError
from turnscore_client._settings import GrpcClientSettings
from turnscore_client._sync.conversation import Line
from turnscore_client._tls import Tls

with needs_extra("grpc", "a gRPC client"):
    import grpc

R = TypeVar("R", bound=BaseModel)


class GrpcDoor:
    """From the calling thread."""

    def __init__(self, settings: GrpcClientSettings, tls: Tls | None, channel: "grpc.Channel | None") -> None:
        self._settings = settings
        credentials = credentials_of(tls)
        opened = open_channel(grpc, settings.address, credentials) if channel is None else channel
        self._channel: Any = opened
        self._open_line = getattr(channel, "open_line", None)  # a mock's own

    def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        left = attempts.seconds_left()
        if left <= 0:
            raise OutOfTimeError
        metadata = self._settings.metadata(call.request_id, call.metadata)
        ask = self._channel.unary_unary(method_of(call))
        try:
            data = ask(write_request(call, attempts), timeout=left, metadata=metadata)
        except grpc.RpcError as failed:
            raise error_of(failed, self._settings.address) from failed
        return read_message(data, call.endpoint.reply_type)

    def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Line:
        """A stream for one conversation."""
        pairs = self._settings.metadata(request_id, metadata)
        if self._open_line is not None:
            line: Line = self._open_line(dict(pairs))
            return line
        return _StreamLine(self._channel, pairs, self._settings.address)

    def close(self) -> None:
        """Closes every connection."""
        self._channel.close()


class _StreamLine:
    """One ScoreStream. gRPC reads without a timeout, so a thread does that and hands over what comes."""

    def __init__(self, channel: Any, metadata: tuple[tuple[str, str], ...], address: str) -> None:
        self._address = address
        self._is_open = False
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[bytes | grpc.RpcError | None] = queue.SimpleQueue()
        self._call = channel.stream_stream(STREAM)(self._messages(), metadata=metadata)
        self._reading = threading.Thread(target=self._read, name="turnscore-conversation", daemon=True)
        self._reading.start()

    def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a stream that has ended it waits for nothing: `receive` reports why it ended."""
        self._outgoing.put(write_message(message))

    def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        """The service's next message."""
        try:
            received = self._incoming.get(timeout=max(0.0, seconds_left()))
        except queue.Empty:
            raise OutOfTimeError from None
        if isinstance(received, bytes):
            self._is_open = True
            return read_message(received, ConversationReply)
        self._incoming.put(None)  # for a caller that asks again
        if received is None:
            raise ConnectionFailedError(f"the conversation with {self._address} has ended")
        return last_reply(received, self._address, is_open=self._is_open)

    def close(self) -> None:
        """Says that nothing more comes, and waits a little for the service's end."""
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
