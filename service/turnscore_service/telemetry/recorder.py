"""Decides at a call's start whether it is traced, and hands the ended call to a thread that exports it.

Nothing is recorded while a call runs. At its end a sampled call becomes one span, and each of its scores an evaluation
event next to the span that the caller named in `traceparent` (W3C Trace Context, level 1).
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from pydantic import BaseModel
from turnscore_wire import BatchReply, ScoreReply, Timing

from turnscore_service.settings.service import TelemetrySettings

TRACEPARENT = "traceparent"
_STAGES = ("tokenize", "queue", "inference", "cache")


def stage_seconds(reply: BaseModel | None) -> dict[str, float]:
    """Where the time of a reply's turns went, of several turns that of the slowest; empty where it has none."""
    if isinstance(reply, BatchReply):
        timings = [each.timing_ms for each in reply.results if isinstance(each, ScoreReply)]
    else:
        timing = getattr(reply, "timing_ms", None)
        timings = [timing] if isinstance(timing, Timing) else []
    return {name: max(getattr(each, name) for each in timings) / 1000 for name in _STAGES} if timings else {}


Events = Literal["off", "sampled", "all"]

_LOGGER = logging.getLogger("turnscore.telemetry")
_MOST_WAITING = 4096  # chosen: ended calls that wait for the thread, some megabytes of replies


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call, or a turn of a conversation, as it ended."""

    trace: "CallTrace"
    code: str  # `ok`, an error's code, or `departed`
    reply: BaseModel | None
    request_id: str
    ended_at_ns: int


class Exporter(Protocol):
    """Where ended calls go; but for `find_caller` called only in the recorder's thread."""

    def find_caller(self, traceparent: str) -> Any:
        """The caller's span, as OpenTelemetry's SpanContext; None where the header does not name one."""

    def export(self, ended: EndedCall) -> None:
        """Makes a span and events of it."""

    def close(self) -> None:
        """Sends what waits."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One call that is traced, from its start."""

    recorder: "TelemetryRecorder"
    transport: str
    call: str
    caller: Any  # as `Exporter.find_caller` gives it
    is_sampled: bool
    started_at_ns: int = field(default_factory=time.time_ns)

    @property
    def has_events(self) -> bool:
        return self.recorder.events == "all" or (self.recorder.events == "sampled" and self.is_sampled)

    def end(self, code: str, reply: BaseModel | None, request_id: str, turn_seconds: float | None = None) -> None:
        """Hands the call over, with its reply if it has one; of a conversation a turn, whose scoring took so long."""
        trace, now_ns = self, time.time_ns()
        if turn_seconds is not None:
            trace = replace(self, call="turn", started_at_ns=now_ns - int(turn_seconds * 1e9))
        self.recorder.hand_over(EndedCall(trace, code, reply, request_id, now_ns))


class TelemetryRecorder:
    """Belongs to one process. `dropped` counts ended calls for which the thread had no room."""

    def __init__(self, exporter: Exporter, *, sample_share: float, events: Events) -> None:
        self.events = events
        self.dropped = 0
        self._exporter = exporter
        self._sample_share = sample_share
        self._waiting: deque[EndedCall] = deque()
        self._is_due = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="turnscore-telemetry", daemon=True)
        self._thread.start()

    def begin(self, transport: str, call: str, carrier: Mapping[str, str]) -> CallTrace | None:
        """The call's trace; None where nothing of it is to be recorded.

        A caller's own span decides whether the call is sampled; without one, chance does.
        """
        sent = carrier.get(TRACEPARENT)
        caller = None if sent is None else self._exporter.find_caller(sent)
        is_sampled = random.random() < self._sample_share if caller is None else caller.trace_flags.sampled  # noqa: S311
        if not is_sampled and self.events != "all":
            return None
        return CallTrace(self, transport, call, caller, is_sampled)

    def hand_over(self, ended: EndedCall) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(ended)
            if not self._is_due.is_set():
                self._is_due.set()
            return
        if not self.dropped:
            _LOGGER.warning("telemetry of some calls is dropped: the exporter is too slow")
        self.dropped += 1

    def close(self) -> None:
        """Returns when all is sent, at the latest after some seconds."""
        self._is_closing.set()
        self._is_due.set()
        self._thread.join(5.0)  # chosen

    def _work(self) -> None:
        while not self._is_closing.is_set():
            self._is_due.wait()
            # Lets calls gather: to wake the thread for each one cost several per cent of a call's CPU (measured).
            self._is_closing.wait(1.0)
            self._is_due.clear()
            while self._waiting:
                self._export(self._waiting.popleft())
        self._exporter.close()

    def _export(self, ended: EndedCall) -> None:
        try:
            self._exporter.export(ended)
        except Exception as error:
            _LOGGER.error("exporting the telemetry of a call failed: %s", type(error).__name__)


_PACKAGES = {"http": "opentelemetry.exporter.otlp.proto.http", "grpc": "opentelemetry.exporter.otlp.proto.grpc"}


class MissingExporterError(Exception):
    """The package that speaks the collector's protocol is not installed; the message names it."""


def require_exporter(settings: TelemetrySettings) -> None:
    """Raises MissingExporterError if telemetry is wanted and cannot be sent."""
    if settings.endpoint and not _is_installed(_PACKAGES[settings.protocol]):
        package = f"opentelemetry-exporter-otlp-proto-{settings.protocol}"
        raise MissingExporterError(
            f"{package} is not installed: install the extra `otel` of turnscore (in a checkout: pip install '.[otel]')"
        )


def open_telemetry(settings: TelemetrySettings) -> TelemetryRecorder | None:
    """The recorder of this process; None where nothing is to be recorded."""
    if not settings.endpoint:
        return None
    from turnscore_service.telemetry.otlp import open_exporter

    return TelemetryRecorder(open_exporter(settings), sample_share=settings.sample_share, events=settings.events)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
