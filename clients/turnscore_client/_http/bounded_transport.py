"""Bounded transport: httpx's for threads, over a pool of httpcore; each read and write gets what is left of its call.

A socket's timeout begins anew with each read, so that an answer which drips in would outlast it.
"""

import os
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

from turnscore_client import _defaults
from turnscore_client._retry import OutOfTimeError

SECONDS_LEFT = "seconds_left"
"""The extension of a request by which the transport asks for the time that its call has left."""

_WRITE_BYTES = 16 * 1024  # one TLS record (RFC 8446, 5.1): the time is looked at before each
_SECONDS_LEFT: ContextVar[Callable[[], float]] = ContextVar("seconds_left")
"""Of the request that this thread sends: httpcore's streams outlive requests and see nothing of them."""


class BoundedTransport(httpx.BaseTransport):
    """For one address, through the environment's proxy where there is one.

    Raises what httpcore raises, and OutOfTimeError. An answer is read whole, and its connection free, when it returns.
    A process that was forked connects anew: on its parent's connections each would get the other's answers.
    """

    def __init__(self, url: httpx.URL, context: ssl.SSLContext | None) -> None:
        self._context, self._proxy = context, _proxy_to(url)
        self._pool, self._process = self._open_pool(), os.getpid()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, not decoded yet."""
        if self._process != os.getpid():
            self._pool, self._process = self._open_pool(), os.getpid()
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        bound = _SECONDS_LEFT.set(request.extensions[SECONDS_LEFT])
        try:
            with self._pool.stream(
                request.method,
                target,
                headers=request.headers.raw,
                content=request.content or None,
                extensions=request.extensions,
            ) as answer:
                content = bytearray()
                for chunk in answer.iter_stream():
                    content += chunk
                    if len(content) > _defaults.MAX_REPLY_BYTES:
                        break  # the caller refuses so much; the connection is closed with what is left
        finally:
            _SECONDS_LEFT.reset(bound)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Pieces(bytes(content)))

    def close(self) -> None:
        """Closes every connection."""
        self._pool.close()

    def _open_pool(self) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            ssl_context=self._context,
            proxy=self._proxy,
            max_connections=_defaults.MAX_CONNECTIONS,
            max_keepalive_connections=_defaults.MAX_IDLE_CONNECTIONS,
            keepalive_expiry=_defaults.IDLE_CONNECTION_SECONDS,
            network_backend=BoundedBackend(),
        )


class _Pieces(httpx.SyncByteStream):
    """A body in pieces, so that a packed one is not unpacked at once: each becomes a thousand times as much at most."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._content), _WRITE_BYTES):
            yield self._content[start : start + _WRITE_BYTES]


class BoundedStream(httpcore.NetworkStream):
    """A stream whose reads and writes raise OutOfTimeError once the call's time is over."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most that much."""
        return self._stream.read(max_bytes, timeout=_seconds_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends all of it, looking at the time now and then."""
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], timeout=_seconds_left())

    def start_tls(self, *args: Any, **kwargs: Any) -> "BoundedStream":
        """The stream inside the encryption, bounded alike."""
        return BoundedStream(self._stream.start_tls(*args, **kwargs))

    def close(self) -> None:
        """Closes the socket."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """What the stream knows of itself."""
        return self._stream.get_extra_info(info)


class BoundedBackend(httpcore.SyncBackend):
    """Opens bounded streams."""

    def connect_tcp(self, *args: Any, **kwargs: Any) -> BoundedStream:
        """A stream to a host."""
        return BoundedStream(super().connect_tcp(*args, **kwargs))


def _seconds_left() -> float:
    left = _SECONDS_LEFT.get()()
    if left <= 0:
        raise OutOfTimeError
    return left


def _proxy_to(url: httpx.URL) -> httpcore.Proxy | None:
    """The environment's proxy for the address. Raises ValueError for one of an unknown kind."""
    named = urllib.request.getproxies()
    found = named.get(url.scheme) or named.get("all")
    if not found or urllib.request.proxy_bypass(url.netloc.decode()):
        return None
    proxy = httpx.Proxy(found if "://" in found else f"http://{found}")
    return httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)
