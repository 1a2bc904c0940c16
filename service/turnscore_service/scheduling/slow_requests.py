"""Slow requests: a log line for each that took too long, with where its time went. Holds no text, and never floods."""

import logging
import time
from collections.abc import Callable

from pydantic import BaseModel

from turnscore_service.telemetry.recorder import stage_seconds

_LOGGER = logging.getLogger("turnscore.slow")
_LINES_PER_SECOND = 10.0  # chosen: where everything is slow, more lines say no more


class SlowLog:
    """Logs requests that took `seconds` or longer; 0 logs none. Leaves out what goes beyond ten lines a second."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds or float("inf")
        self._clock = clock
        self._lines = _LINES_PER_SECOND
        self._counted_at = clock()
        self._omitted = 0

    def note(self, call: str, code: str, seconds: float, reply: BaseModel | None) -> None:
        """Logs the request if it was slow: its time, and the largest of each stage over its turns, in seconds.

        `elsewhere` is what no stage took: reading, decoding, waiting for the event loop and writing the reply.
        """
        if seconds < self.seconds:
            return
        now = self._clock()
        self._lines = min(_LINES_PER_SECOND, self._lines + (now - self._counted_at) * _LINES_PER_SECOND)
        self._counted_at = now
        if self._lines < 1:
            self._omitted += 1
            return
        self._lines -= 1
        fields: dict[str, object] = {"call": call, "code": code, "seconds": round(seconds, 4)}
        if stages := stage_seconds(reply):
            fields |= {name: round(took, 4) for name, took in stages.items()}
            fields["elsewhere"] = round(max(0.0, seconds - sum(stages.values())), 4)
        if self._omitted:
            fields["omitted"] = self._omitted
            self._omitted = 0
        _LOGGER.warning("slow request", extra=fields)
