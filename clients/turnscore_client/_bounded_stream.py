"""Bounded streams: every read and write of a socket gets what is left of its call, not the same timeout once more.

httpx asks for a timeout once for all the reads of an answer, so that an answer which drips in would outlast it.
Wraps the streams that httpcore opens; knows nothing of requests.
"""

from collections.abc import Callable
from typing import Any

_WRITE_BYTES = 16 * 1024  # one TLS record (RFC 8446, 5.1): the time is looked at before each


class OutOfTimeError(Exception):
    """The time given to one request ran out. Never leaves this package."""


class LivingTimeout(float):
    """Seconds that were left when it was made, and a way to ask again."""

    seconds_left: Callable[[], float]

    @classmethod
    def take(cls, seconds_left: Callable[[], float], least_seconds: float) -> "LivingTimeout":
        """A timeout as of this moment, never below `least_seconds`."""
        timeout = cls(max(seconds_left(), least_seconds))
        timeout.seconds_left = seconds_left
        return timeout


class BoundedStream:
    """A network stream of httpcore whose reads and writes raise OutOfTimeError once the call's time is over."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most that much."""
        received: bytes = self._stream.read(max_bytes, timeout=_renew(timeout))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends all of it, looking at the time now and then."""
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], timeout=_renew(timeout))

    def start_tls(self, *args: Any, **kwargs: Any) -> "BoundedStream":
        """The stream inside the encryption, bounded alike."""
        return BoundedStream(self._stream.start_tls(*args, **kwargs))

    def close(self) -> None:
        """Closes the socket."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """What the stream tells of itself."""
        return self._stream.get_extra_info(info)


class BoundedBackend:
    """A network backend of httpcore that opens bounded streams."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, *args: Any, **kwargs: Any) -> BoundedStream:
        """A stream to a host."""
        return BoundedStream(self._backend.connect_tcp(*args, **kwargs))

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> BoundedStream:
        """A stream to a socket file."""
        return BoundedStream(self._backend.connect_unix_socket(*args, **kwargs))

    def sleep(self, seconds: float) -> None:
        """Between httpcore's own attempts to connect."""
        self._backend.sleep(seconds)


def _renew(timeout: float | None) -> float | None:
    if not isinstance(timeout, LivingTimeout):
        return timeout
    left = timeout.seconds_left()
    if left <= 0:
        raise OutOfTimeError
    return left
