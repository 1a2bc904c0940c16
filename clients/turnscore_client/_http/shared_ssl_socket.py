"""Encrypted sockets that one thread may read while another writes: OpenSSL allows no two calls on a connection at once.

websockets reads in a thread of its own while its caller writes. On ssl's own sockets 1 of 100 conversations hung when
it was opened: the reader took the service's session tickets while the request was written (OpenSSL 3, TLS 1.3).
"""

import selectors
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedSslSocket(ssl.SSLSocket):
    """From the end of its handshake it waits outside of OpenSSL, and calls it for one thread at a time.

    `recv`, `send` and `sendall` raise TimeoutError as those of ssl do; other ways to read and write are not guarded.
    """

    _turn: "threading.Lock | None" = None  # none before the handshake, which one thread does
    _timeout: float | None = None

    def do_handshake(self, block: bool = False) -> None:
        """As ssl's."""
        super().do_handshake(block)
        self._timeout = super().gettimeout()
        super().settimeout(0.0)
        self._turn = threading.Lock()

    def settimeout(self, value: float | None) -> None:
        """For what begins after it."""
        if self._turn is None:
            super().settimeout(value)
        self._timeout = value

    def gettimeout(self) -> float | None:
        """What was set."""
        return super().gettimeout() if self._turn is None else self._timeout

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """What has come, at most that much."""
        return self._take_turns(lambda: super(SharedSslSocket, self).recv(buflen, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        """How many bytes of it went; `sendall` is made of this."""
        return self._take_turns(lambda: super(SharedSslSocket, self).send(data, flags))

    def _take_turns(self, step: Callable[[], T]) -> T:
        if self._turn is None:
            return step()
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                with self._turn:
                    return step()
            except (ssl.SSLWantReadError, BlockingIOError):
                self._wait(selectors.EVENT_READ, end)
            except ssl.SSLWantWriteError:
                self._wait(selectors.EVENT_WRITE, end)

    def _wait(self, event: int, end: float | None) -> None:
        left = None if end is None else end - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self, event)
            if (left is not None and left <= 0) or not selector.select(left):
                raise TimeoutError("timed out")


def share(context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Has the context open such sockets."""
    if context is not None:
        context.sslsocket_class = SharedSslSocket
    return context
