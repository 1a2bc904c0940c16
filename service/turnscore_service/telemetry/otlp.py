"""Makes OpenTelemetry spans and evaluation events of ended calls, and sends them to a collector over OTLP.

The only module that imports opentelemetry; it is imported only where a collector is configured. No attribute holds text
of a dialogue, an address or a key.
"""

import os
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import chain
from typing import Any, Final, TypeAlias

import turnscore_wire as wire
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import BaseModel

from turnscore_service.settings.service import TelemetrySettings
from turnscore_service.telemetry.recorder import TRACEPARENT, EndedCall, stage_seconds

# OpenTelemetry's semantic conventions 1.44.0: `http.*` and `error.type` are stable, `rpc.*` in development.
SPAN_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

# Its conventions for generative AI (open-telemetry/semantic-conventions-genai). All are in development and had no
# release by October 2026, so the names stand here and not in a library.
EVENT_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"

Attributes: TypeAlias = dict[str, str | int | float | bool]
_Turn: TypeAlias = tuple[Attributes, Mapping[str, wire.Score], Mapping[str, wire.ErrorDetail]]


def evaluations_of(ended: EndedCall) -> Iterator[Attributes]:
    """The attributes of an event for each score and for each scorer that failed."""
    for turn, scores, errors in _turns_of(ended.reply):
        place = {**turn, "turnscore.request_id": ended.request_id}
        for name, score in scores.items():
            yield {**place, **_evaluation(name, score)}
        for name, error in errors.items():
            yield {**place, "gen_ai.evaluation.name": f"turnscore.{name}", "error.type": str(error.code)}


def timing_attributes(ended: EndedCall) -> Attributes:
    """How many turns a call scored, and in seconds where its time went."""
    turns = list(_turns_of(ended.reply))
    if not turns:
        return {}
    scores = list(chain.from_iterable(scores.values() for _, scores, _ in turns))
    stages = {f"turnscore.{name}.duration": seconds for name, seconds in stage_seconds(ended.reply).items()}
    return {"turnscore.turns": len(turns), "turnscore.cached_scores": sum(score.cached for score in scores), **stages}


def _evaluation(name: str, score: wire.Score) -> Attributes:
    known: dict[str, str | float | bool | None] = {
        "gen_ai.evaluation.name": f"turnscore.{name}",
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": score.label,
        "gen_ai.evaluation.explanation": None
        if score.percentile is None
        else f"{score.percentile:.0f} of 100 reference turns score lower",
        "turnscore.model": score.model,  # the evaluator, for which the convention has no name yet (its issue 359)
        "turnscore.percentile": score.percentile,
        "turnscore.stand_in": score.stand_in or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _turns_of(reply: BaseModel | None) -> Iterator[_Turn]:
    if isinstance(reply, wire.ScoreReply):
        yield {}, reply.scores, reply.errors
    elif isinstance(reply, wire.ConversationScored):
        yield {"turnscore.turn_index": reply.index}, reply.scores, reply.errors
    elif isinstance(reply, wire.BatchReply):
        for index, result in enumerate(reply.results):
            if isinstance(result, wire.ScoreReply):
                yield {"turnscore.item_index": index}, result.scores, result.errors
    elif isinstance(reply, wire.DialogueReply):
        for turn in reply.turns:
            yield {"turnscore.turn_index": turn.index}, turn.scores, turn.errors
    elif isinstance(reply, wire.RankReply):
        for candidate in reply.candidates:
            # of a ranking, whose candidates were not all used
            yield {"turnscore.candidate_index": candidate.index}, candidate.scores, candidate.errors


_PROPAGATOR = TraceContextTextMapPropagator()
_SCOPE = "turnscore"
_VERSION = version("turnscore")
# Of a collector's reply, unpacked. A partial success, which has the most to say, has some hundred.
MAX_REPLY_BYTES = 1024 * 1024
_REPLY_SECONDS, _PIECE_BYTES = 10.0, 4096
_ROUTES = {"conversation": "/v1/conversations"}
_RPC_SERVICE = "turnscore.v1.TurnScorer"
_RPC_METHODS = {"conversation": "ScoreStream"}
# What both conventions for servers call an error of the span.
_FAULTS_OF_OURS = frozenset({wire.ErrorCode.INTERNAL, wire.ErrorCode.NOT_READY, wire.ErrorCode.DEADLINE_EXCEEDED})


class OtlpExporter:
    """Belongs to the recorder's thread; what it makes is sent in the background, in batches."""

    def __init__(self, spans: SpanExporter, logs: LogRecordExporter, service_name: str) -> None:
        resource = Resource.create({"service.name": service_name, "service.version": _VERSION})
        # Which calls are sampled is decided before they come here.
        self._spans = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
        self._spans.add_span_processor(BatchSpanProcessor(spans))
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        # as long as spans wait: OpenTelemetry's second makes five times the requests
        delay_ms = float(os.environ.get("OTEL_BLRP_SCHEDULE_DELAY", 5000.0))
        self._logs.add_log_record_processor(BatchLogRecordProcessor(logs, schedule_delay_millis=delay_ms))
        self._tracer = self._spans.get_tracer(_SCOPE, _VERSION, schema_url=SPAN_SCHEMA_URL)
        self._logger = self._logs.get_logger(_SCOPE, _VERSION, schema_url=EVENT_SCHEMA_URL)

    def find_caller(self, traceparent: str) -> SpanContext | None:
        found = trace.get_current_span(_PROPAGATOR.extract({TRACEPARENT: traceparent})).get_span_context()
        return found if found.is_valid else None

    def export(self, ended: EndedCall) -> None:
        caller = ended.trace.caller
        context = None if caller is None else trace.set_span_in_context(NonRecordingSpan(caller), Context())
        if ended.trace.is_sampled:
            span = self._span_of(ended, context)
            context = context or trace.set_span_in_context(span)
        if ended.trace.has_events:
            for attributes in evaluations_of(ended):
                self._logger.emit(
                    LogRecord(
                        timestamp=ended.ended_at_ns,
                        context=context,
                        severity_number=SeverityNumber.INFO,
                        event_name="gen_ai.evaluation.result",
                        attributes=attributes,
                    )
                )

    def close(self) -> None:
        self._spans.shutdown()
        self._logs.shutdown()

    def _span_of(self, ended: EndedCall, parent: Context | None) -> Span:
        name, attributes = _described(ended)
        span = self._tracer.start_span(
            name,
            context=parent or Context(),
            kind=SpanKind.INTERNAL if ended.trace.call == "turn" else SpanKind.SERVER,
            attributes={**attributes, **timing_attributes(ended)},
            start_time=ended.trace.started_at_ns,
        )
        if ended.code in _FAULTS_OF_OURS:
            span.set_status(StatusCode.ERROR)
        span.end(ended.ended_at_ns)
        return span


def _described(ended: EndedCall) -> tuple[str, Mapping[str, Any]]:
    """The span's name and what the conventions say of a server's spans."""
    own: dict[str, Any] = {"turnscore.call": ended.trace.call, "turnscore.request_id": ended.request_id}
    is_error = ended.code not in ("ok", "departed")
    if is_error:
        own["error.type"] = ended.code
    if ended.trace.call == "turn":
        return "turn", own
    rule = wire.ERROR_TABLE[wire.ErrorCode(ended.code)] if is_error else None
    if ended.trace.transport == "grpc":
        method = f"{_RPC_SERVICE}/{_RPC_METHODS.get(ended.trace.call) or ended.trace.call.title().replace('_', '')}"
        status = rule.grpc_code if rule else "OK" if ended.code == "ok" else "CANCELLED"
        return method, {**own, "rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": status}
    route = _ROUTES.get(ended.trace.call, f"/v1/{ended.trace.call}")
    method = "GET" if ended.trace.call in ("conversation", "models") else "POST"
    known = {"http.request.method": method, "http.route": route, "url.path": route}
    if rule is not None or (ended.code == "ok" and ended.trace.call != "conversation"):
        known["http.response.status_code"] = rule.http_status if rule else 200  # type: ignore[assignment]
    return f"{method} {route}", {**own, **known}


def open_exporter(settings: TelemetrySettings) -> OtlpExporter:
    """The exporter to a collector. Raises ModuleNotFoundError where the protocol's package is not installed."""
    connect = _over_grpc if settings.protocol == "grpc" else _over_http
    return OtlpExporter(*connect(settings.endpoint, settings.headers), settings.service_name)


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
            reply._content, reply._content_consumed = bytes(kept), True  # type: ignore[attr-defined]
            return reply

    return BoundedSession()


def _over_grpc(endpoint: str, headers: Mapping[str, str]) -> tuple[SpanExporter, LogRecordExporter]:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    given = {name.lower(): value for name, value in headers.items()} or None  # gRPC takes no upper case
    return OTLPSpanExporter(endpoint, headers=given), OTLPLogExporter(endpoint, headers=given)
