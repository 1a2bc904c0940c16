"""The OTLP exporter: makes OpenTelemetry's spans and log records of ended calls, and sends them to a collector.

The only module that imports opentelemetry; nobody imports it where no collector is configured.
"""

import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from turnscore_wire import ERROR_TABLE, ErrorCode

from turnscore_service.telemetry import names
from turnscore_service.telemetry.evaluations import evaluations_of, timing_attributes
from turnscore_service.telemetry.recorder import EndedCall
from turnscore_service.telemetry.trace_context import CallerSpan

_SCOPE = "turnscore"
_VERSION = version("turnscore")
_LOG_DELAY_VARIABLE = "OTEL_BLRP_SCHEDULE_DELAY"
_LOG_DELAY_MS = 5000.0
MAX_REPLY_BYTES = 1024 * 1024
"""Of a collector's reply, unpacked. A partial success, which has the most to say, has some hundred."""
_REPLY_SECONDS, _PIECE_BYTES = 10.0, 4096
_ROUTES = {"conversation": "/v1/conversations"}
_RPC_SERVICE = "turnscore.v1.TurnScorer"
_RPC_METHODS = {"conversation": "ScoreStream"}
_FAULTS_OF_OURS = frozenset({ErrorCode.INTERNAL, ErrorCode.NOT_READY, ErrorCode.DEADLINE_EXCEEDED})
"""What both conventions for servers call an error of the span."""


class OtlpExporter:
    """Belongs to the recorder's thread; what it makes is sent in the background, in batches."""

    def __init__(self, spans: SpanExporter, logs: LogRecordExporter, service_name: str) -> None:
        resource = Resource.create({"service.name": service_name, "service.version": _VERSION})
        # Which calls are sampled is decided before they come here.
        self._spans = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
        self._spans.add_span_processor(BatchSpanProcessor(spans))
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(BatchLogRecordProcessor(logs, schedule_delay_millis=_log_delay_ms()))
        self._tracer = self._spans.get_tracer(_SCOPE, _VERSION, schema_url=names.SPAN_SCHEMA_URL)
        self._logger = self._logs.get_logger(_SCOPE, _VERSION, schema_url=names.EVENT_SCHEMA_URL)

    def export(self, ended: EndedCall) -> None:
        """A span if it is sampled, and an event for each score."""
        beside = _context_of(ended.caller)
        if ended.is_sampled:
            span = self._span_of(ended, beside)
            beside = beside or trace.set_span_in_context(span)
        if ended.has_events:
            for attributes in evaluations_of(ended):
                self._logger.emit(
                    LogRecord(
                        timestamp=ended.ended_at_ns,
                        context=beside,
                        severity_number=SeverityNumber.INFO,
                        event_name=names.EVALUATION_EVENT,
                        attributes=attributes,
                    )
                )

    def close(self) -> None:
        """Sends what waits."""
        self._spans.shutdown()
        self._logs.shutdown()

    def _span_of(self, ended: EndedCall, parent: Context | None) -> Span:
        name, attributes = _described(ended)
        span = self._tracer.start_span(
            name,
            context=parent or Context(),
            kind=SpanKind.INTERNAL if ended.call == "turn" else SpanKind.SERVER,
            attributes={**attributes, **timing_attributes(ended)},
            start_time=ended.started_at_ns,
        )
        if ended.code in _FAULTS_OF_OURS:
            span.set_status(StatusCode.ERROR)
        span.end(ended.ended_at_ns)
        return span


def _log_delay_ms() -> float:
    """As the environment says, else as long as spans wait; OpenTelemetry's second makes five times the requests."""
    return float(os.environ.get(_LOG_DELAY_VARIABLE, _LOG_DELAY_MS))


def _context_of(caller: CallerSpan | None) -> Context | None:
    if caller is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if caller.is_sampled else TraceFlags.DEFAULT)
    span = NonRecordingSpan(SpanContext(caller.trace_id, caller.span_id, is_remote=True, trace_flags=flags))
    return trace.set_span_in_context(span, Context())


def _described(ended: EndedCall) -> tuple[str, Mapping[str, Any]]:
    """The span's name and what the conventions say of a server's spans."""
    own: dict[str, Any] = {names.CALL: ended.call, names.REQUEST_ID: ended.request_id}
    is_error = ended.code not in ("ok", "departed")
    if is_error:
        own[names.ERROR_TYPE] = ended.code
    if ended.call == "turn":
        return "turn", own
    rule = ERROR_TABLE[ErrorCode(ended.code)] if is_error else None
    if ended.door == "grpc":
        method = f"{_RPC_SERVICE}/{_RPC_METHODS.get(ended.call) or _camel(ended.call)}"
        status = rule.grpc_code if rule else "OK" if ended.code == "ok" else "CANCELLED"
        return method, {**own, names.RPC_SYSTEM: "grpc", names.RPC_METHOD: method, names.RPC_STATUS: status}
    route = _ROUTES.get(ended.call, f"/v1/{ended.call}")
    method = "GET" if ended.call in ("conversation", "models") else "POST"
    known = {names.HTTP_METHOD: method, names.HTTP_ROUTE: route, names.URL_PATH: route}
    if rule is not None or (ended.code == "ok" and ended.call != "conversation"):
        known[names.HTTP_STATUS] = rule.http_status if rule else 200  # type: ignore[assignment]
    return f"{method} {route}", {**own, **known}


def _camel(call: str) -> str:
    return "".join(part.capitalize() for part in call.split("_"))


def open_exporter(endpoint: str, protocol: str, headers: Mapping[str, str], service_name: str) -> OtlpExporter:
    """The exporter to a collector. Raises ModuleNotFoundError where the protocol's package is not installed."""
    spans, logs = _over_grpc(endpoint, headers) if protocol == "grpc" else _over_http(endpoint, headers)
    return OtlpExporter(spans, logs, service_name)


def _over_http(endpoint: str, headers: Mapping[str, str]) -> tuple[SpanExporter, LogRecordExporter]:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    base = endpoint.rstrip("/")
    given = dict(headers) or None
    return (
        OTLPSpanExporter(f"{base}/v1/traces", headers=given, session=_bounded_session()),
        OTLPLogExporter(f"{base}/v1/logs", headers=given, session=_bounded_session()),
    )


def _bounded_session() -> Any:
    """A session of requests, which the exporters send by, that reads a bounded reply in bounded time.

    A collector's reply says little. One without an end, or packed zeros, would fill the worker's memory.
    """
    import requests

    class BoundedSession(requests.Session):
        def send(self, request: Any, **options: Any) -> Any:
            """Raises ConnectionError, which the exporter logs and counts as any other failure, for more or later."""
            reply = super().send(request, **{**options, "stream": True})
            ends_at = time.monotonic() + _REPLY_SECONDS
            kept = bytearray()
            try:
                for piece in reply.iter_content(_PIECE_BYTES):
                    kept += piece
                    if len(kept) > MAX_REPLY_BYTES or time.monotonic() > ends_at:
                        raise requests.exceptions.ConnectionError(
                            f"the collector's reply has more than {MAX_REPLY_BYTES} bytes, or takes more than "
                            f"{_REPLY_SECONDS:g} s"
                        )
            finally:
                reply.close()
            reply._content, reply._content_consumed = bytes(kept), True
            return reply

    return BoundedSession()


def _over_grpc(endpoint: str, headers: Mapping[str, str]) -> tuple[SpanExporter, LogRecordExporter]:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    given = {name.lower(): value for name, value in headers.items()} or None  # gRPC takes no upper case
    return OTLPSpanExporter(endpoint, headers=given), OTLPLogExporter(endpoint, headers=given)
