"""Replaces uvicorn's HTTP protocol: the head of a request is bounded in time and size, and refusals have the one shape.

This happens on a connection before there is a request, so no ASGI application can do it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import httptools
from starlette.responses import Response
from starlette.types import ASGIApp
from turnscore_core.errors import DeadlineExceededError, InvalidRequestError, ScoringError, TooLargeError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

LINK = "turnscore.link"  # the key of a request's `Link` in its ASGI scope
HEADERS_FIELD = "headers"  # the field that a refusal of a request's head names

_MOST_HEADERS = 128  # the limit of the server's WebSocket library for a handshake, too
# Requests sent ahead on one connection. Chosen: making their scopes takes some 2 ms of the event loop.
_MOST_WAITING = 128
_FAREWELL_SECONDS = 1.0  # how long a refused caller gets to read why


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the connections of one service have in common."""

    refuse: Callable[[ScoringError], Response]  # makes the response that carries an error
    # From the beginning of a connection, or of a further request on it, to the end of the headers.
    header_timeout_seconds: float
    max_head_bytes: int
    max_message_bytes: int  # of one WebSocket message, however it was compressed and in however many fragments it comes
    # Answers the requests; None for the server's app, with everything that the server puts around it.
    app: ASGIApp | None = None


def refusal_bytes(response: Response, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    headers = [*default_headers, *response.raw_headers, (b"connection", b"close")]
    lines = [STATUS_LINE[response.status_code], *(b"%s: %s\r\n" % header for header in headers), b"\r\n"]
    return b"".join([*lines, bytes(response.body)])


def close_gently(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> asyncio.TimerHandle:
    """Ends our side, and the connection soon after: closed at once, a caller who still sends would lose the answer."""
    if transport.can_write_eof():
        transport.write_eof()
    return loop.call_later(_FAREWELL_SECONDS, transport.close)


class Link:
    """One request's connection: spares the objects and messages of ASGI, which took 0.1 ms of CPU."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, cycle: RequestResponseCycle, protocol: "BoundedHttpProtocol") -> None:
        self._cycle = cycle
        self._protocol = protocol

    def take_body(self) -> bytes | None:
        """The request's body where all of it has come and it has not been taken; else None."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or not cycle.message_event.is_set():
            return None
        cycle.message_event.clear()
        cycle.waiting_for_100_continue = False
        self._protocol.flow.resume_reading()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def send(self, response: Response) -> bool:
        """Sends the whole response in one piece if it can go out at once; else does nothing and returns False."""
        cycle, protocol = self._cycle, self._protocol
        if cycle.response_started or cycle.disconnected or cycle.access_log or protocol.flow.write_paused:
            return False
        parts = [STATUS_LINE[response.status_code]]
        for name, value in (*cycle.default_headers, *response.raw_headers):
            parts += name, b": ", value, b"\r\n"
        parts += b"" if cycle.keep_alive else b"connection: close\r\n", b"\r\n", bytes(response.body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        protocol.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            protocol.transport.close()
        cycle.on_response()
        return True

    def watch(self, on_leave: Callable[[], object] | None) -> None:
        """From here on calls this, once, when the caller leaves; None: calls nothing more."""
        self._protocol.on_leave = on_leave


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. Between two requests uvicorn's own keep-alive time holds."""

    serving: ClassVar[Serving]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.serving.app is not None:
            self.app = cast("ASGI3Application", self.serving.app)
        # Called when the connection ends while a request of it is being answered.
        self.on_leave: Callable[[], object] | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._is_within_head = False
        self._head_bytes = 0
        self._unheard_bytes = 0  # received since the parser last reported a head, a body's part or a message's end
        self._error: ScoringError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The time for the first request's head begins."""
        super().connection_made(transport)
        self._start_head_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_clock()
        super().connection_lost(exc)
        if (leave := self.on_leave) is not None:
            self.on_leave = None
            leave()

    def data_received(self, data: bytes) -> None:
        """Hands the data to the parser, unless the connection has been refused."""
        if self._is_over:
            return
        self._unheard_bytes += len(data)
        if self._unheard_bytes > self.serving.max_head_bytes + len(data):  # what began in this piece counts by itself
            self._error = self._too_large()
            self.send_400_response("")
            return
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self._is_within_head or not is_answering:
            self._start_head_clock()

    def handle_websocket_upgrade(self) -> None:
        self._stop_head_clock()
        self._is_over = True
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """A request begins; refuses a caller that sends too many ahead."""
        if len(self.pipeline) >= _MOST_WAITING:
            self._fail(InvalidRequestError(f"more than {_MOST_WAITING} requests were sent ahead"))
        super().on_message_begin()
        self._stop_head_clock()
        self._is_within_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > self.serving.max_head_bytes:
            self._fail(self._too_large())
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a chunked body's trailer, which is not read."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.serving.max_head_bytes or len(self.headers) > _MOST_HEADERS:
            self._fail(self._too_large())
        if self._is_within_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_within_head = False
        self._unheard_bytes = 0
        self._stop_head_clock()
        if len(self.headers) > _MOST_HEADERS:
            self._fail(self._too_large())
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            cast("dict[str, Any]", self.scope)[LINK] = Link(self.cycle, self)

    def on_body(self, body: bytes) -> None:
        """A part of the body, which the app bounds."""
        self._unheard_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unheard_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no request, after the answers that are due, and closes the connection."""
        error = self._error or InvalidRequestError("this is not an HTTP request")
        self._is_over = True
        self._stop_head_clock()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False  # ends the connection with its answer
            return
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(refusal_bytes(self.serving.refuse(error), self.server_state.default_headers))
        close_gently(self.loop, self.transport)

    def _too_large(self) -> TooLargeError:
        most = f"{self.serving.max_head_bytes} bytes and {_MOST_HEADERS} headers"
        return TooLargeError(f"the first line and the headers are larger than {most}", field=HEADERS_FIELD)

    def _fail(self, error: ScoringError) -> None:
        """Ends the parsing; `send_400_response` follows."""
        self._error = error
        raise httptools.HttpParserError(error.message)

    def _start_head_clock(self) -> None:
        if self._head_timer is None and not self._is_over and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.serving.header_timeout_seconds, self._end_head_time)

    def _stop_head_clock(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_head_time(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self._is_within_head:
            message = f"the headers did not arrive within {self.serving.header_timeout_seconds:g} s"
            self._error = DeadlineExceededError(message, field=HEADERS_FIELD)
            self.send_400_response("")
        elif self.cycle is None or self.cycle.response_complete:
            self._is_over = True
            self.transport.close()
