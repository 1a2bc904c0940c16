"""Replaces uvicorn's WebSocket protocol: messages, fragments and unread answers are bounded before decoding."""

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, cast

from turnscore_core.errors import InvalidRequestError, TooLargeError
from turnscore_wire import BODY_FIELD, ERROR_TABLE, ConversationReply, ErrorCode
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame
from websockets.http11 import Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from turnscore_service._patches import WEBSOCKET_LOGGER
from turnscore_service._patches.uvicorn_http import BoundedHttpProtocol, Serving, close_gently, refusal_bytes

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


_MOST_FRAGMENTS = 1024  # of one message. Chosen: browsers and libraries send whole messages, or pieces of some 100 KiB
_PIECE_BYTES = 4096  # how much is parsed before others have their turn: at most 680 frames


# The close code of a conversation that ends with this error.
_TOO_LARGE = 4000 + ERROR_TABLE[ErrorCode.TOO_LARGE].http_status


class _OneShapeServer(ServerProtocol):
    """Refuses a handshake, and a message that is too large, in the one error shape."""

    def __init__(self, serving: Serving, **kwargs: Any) -> None:
        super().__init__(max_size=serving.max_message_bytes, **kwargs)
        self._serving = serving

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """Ends the connection; one with too large a message as a conversation of too many bytes ends."""
        if code == CloseCode.MESSAGE_TOO_BIG and self.state is State.OPEN:
            error = TooLargeError(f"a message has more than {self.max_message_size} bytes", field=BODY_FIELD)
            self.send_text(ConversationReply(error=error.detail()).model_dump_json(exclude_unset=True).encode())
            code, reason = _TOO_LARGE, error.code
        super().fail(code, reason)

    def reject(self, status: StatusLike, text: str) -> Response:
        """The answer to a handshake that is none; its status is the library's. 403 is an application's own no."""
        if int(status) == HTTPStatus.FORBIDDEN:
            return super().reject(status, text)
        answer = self._serving.refuse(InvalidRequestError("this is not a WebSocket handshake"))
        headers = Headers([(name.decode(), value.decode()) for name, value in answer.raw_headers])
        headers["connection"] = "close"
        return Response(int(status), HTTPStatus(int(status)).phrase, headers, bytes(answer.body))


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. Reads on only while its messages are taken and its answers leave."""

    serving: ClassVar[Serving]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.serving.app is not None:
            self.app = cast("ASGI3Application", self.serving.app)
        self.logger = logging.getLogger(WEBSOCKET_LOGGER)
        self.conn = _OneShapeServer(self.serving, extensions=self.conn.available_extensions, logger=self.logger)
        self._unread = b""
        self._is_over = False
        self._next: asyncio.Handle | None = None

    def data_received(self, data: bytes) -> None:
        """Takes what came; it is parsed piece by piece, so that no other caller has to wait for all of it."""
        if not self._is_over:
            self._unread += data
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops everything that was not read yet."""
        self._unread = b""
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The caller takes no answers, or none to its pings: nothing more is read."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """There is room for answers again."""
        super().resume_writing()
        self._read_on()

    def handle_cont(self, event: Frame) -> None:
        """A fragment; ends a connection whose message has too many."""
        if len(self.frames) < _MOST_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.fail(CloseCode.PROTOCOL_ERROR, f"more than {_MOST_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Says to the caller and the app why it is over; bytes that still come are thrown away."""
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self._take_no_more()
        # Chosen: the WebSocket of Node drops our last words where they come together with the end of the stream.
        self.close_timer = self.loop.call_later(0.25, self._end)

    async def receive(self) -> Any:
        message = await super().receive()
        self._read_on()
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        self._read_on()

    def _read_on(self) -> None:
        """Parses one piece, and goes on with the next when others had their turn."""
        if self._next is not None or self._is_over or self.transport.is_closing():
            return
        if not self.read_paused and self.writable.is_set() and self._unread:
            piece, self._unread = self._unread[:_PIECE_BYTES], self._unread[_PIECE_BYTES:]
            super().data_received(piece)
            self._refuse_broken_handshake()
        if self._is_over or self.transport.is_closing():
            return
        is_free = not self.read_paused and self.writable.is_set()
        if self._unread or not is_free:
            self.transport.pause_reading()
            if is_free:
                self._next = self.loop.call_soon(self._continue)
        else:
            self.transport.resume_reading()

    def _continue(self) -> None:
        self._next = None
        self._read_on()

    def _refuse_broken_handshake(self) -> None:
        """A head that the WebSocket library cannot read, such as one with a line beyond 8 KiB."""
        if self.conn.handshake_exc is not None and not self.handshake_initiated and not self.transport.is_closing():
            self.transport.write(
                refusal_bytes(self.serving.refuse(InvalidRequestError("this is not a WebSocket handshake")), [])
            )
            self._end()

    def _take_no_more(self) -> None:
        self._is_over = self.close_sent = True
        self._unread = b""
        self.transport.resume_reading()

    def _end(self) -> None:
        self._take_no_more()
        self.close_timer = close_gently(self.loop, self.transport)


def bounded_protocols(serving: Serving) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    return (
        type("HttpProtocol", (BoundedHttpProtocol,), {"serving": serving}),
        type("WebSocketProtocol", (BoundedWebSocketProtocol,), {"serving": serving}),
    )


def install_protocols(serving: Serving) -> None:
    """Every server that this process configures from here on has them, unless it names others: BentoML names none.

    Requests then go from the connection to `serving.app`. What BentoML puts around its app took 0.1 ms of CPU for each,
    and its timeout kept a timer of every request until `traffic.timeout` was over. Its app keeps the life cycle.
    """
    HTTP_PROTOCOLS["auto"], WS_PROTOCOLS["auto"] = bounded_protocols(serving)  # type: ignore[assignment]
