"""Heartbeat: how long the service's health check takes, asked again and again over one connection beside an attack."""

import http.client
import threading
import time
from types import TracebackType
from typing import Self

from turnscore_load.address import LOOPBACK
from turnscore_load.hostile.neighbours import NEIGHBOUR

_PAUSE_SECONDS = 0.02


class Heartbeat:
    """Asks while the block runs; `longest_seconds` is then the longest that an answer took, infinite if one failed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self.longest_seconds = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _beat(self) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=60, source_address=(NEIGHBOUR, 0))
        while not self._is_over.wait(_PAUSE_SECONDS):
            began_at = time.monotonic()
            try:
                connection.request("GET", "/livez")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                self.longest_seconds = float("inf")
                return
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began_at)
        connection.close()
