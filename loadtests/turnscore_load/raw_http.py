"""Raw HTTP: kept connections that cost the sender next to nothing, so that load and service can share two cores.

One call at a time on a connection; what it reads is only what turnscore sends: HTTP/1.1 with a Content-Length.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from turnscore_load.address import LOOPBACK

_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReply:
    """A reply; status 0 where there was none, `why` then says the reason."""

    status: int
    retry_after: str | None = None
    body: bytes = b""
    why: str = ""


def post_bytes(path: str, port: int, body: bytes) -> bytes:
    """A POST of JSON as it goes over the connection."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class RawConnection(asyncio.Protocol):
    """One connection. `send` may be called again from within the callback of the reply before."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._on_reply: Callable[[RawReply], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, on_reply: Callable[[RawReply], None]) -> None:
        """Sends one request; `on_reply` is called once, whatever comes of it."""
        assert self._on_reply is None, "one call at a time"
        self._on_reply = on_reply
        if self._transport is None or self._transport.is_closing():
            self._finish(RawReply(status=0, why="the connection was closed"))
            return
        self._transport.write(request)

    def abort(self, why: str) -> None:
        """Gives the call up and closes the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._finish(RawReply(status=0, why=why))

    def close(self) -> None:
        """Closes the connection; a call on it ends without a reply."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(RawReply(status=0, why=f"the connection was lost: {type(exc).__name__ if exc else 'closed'}"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_END_OF_HEAD)
        if end < 0:
            return
        try:
            status, headers = _read_head(bytes(self._received[:end]))
            length = int(headers["content-length"])
        except (ValueError, KeyError, IndexError):
            self.abort("the reply was not HTTP with a length")
            return
        begin = end + len(_END_OF_HEAD)
        if len(self._received) < begin + length:
            return
        body = bytes(self._received[begin : begin + length])
        self._received.clear()
        if headers.get("connection", "").lower() == "close" and self._transport is not None:
            self._transport.close()
        self._finish(RawReply(status=status, retry_after=headers.get("retry-after"), body=body))

    def _finish(self, reply: RawReply) -> None:
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            on_reply(reply)


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, their names in lower case."""
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = (line.partition(":") for line in rest)
    return int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in headers}


async def open_connection(port: int, address: str = LOOPBACK) -> RawConnection:
    """A connection to the service on this machine, from that address of the machine. Raises OSError."""
    _, connection = await asyncio.get_running_loop().create_connection(
        RawConnection, LOOPBACK, port, local_addr=(address, 0)
    )
    return connection
