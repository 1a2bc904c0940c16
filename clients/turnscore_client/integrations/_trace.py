"""The trace that a turn belongs to: OpenTelemetry's, where the chatbot has loaded it. Imports it for nobody."""

import sys
from dataclasses import replace
from typing import Any

from turnscore_client.integrations._options import TurnIds


def current_traceparent() -> str | None:
    """The active span as W3C Trace Context writes it, so that scores can be found beside it."""
    span = _current_span()
    return None if span is None else f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def current_ids(ids: TurnIds) -> TurnIds:
    """The ids, with the active span's where the framework gives none."""
    if ids.trace_id is not None or (span := _current_span()) is None:
        return ids
    return replace(ids, trace_id=f"{span.trace_id:032x}", span_id=ids.span_id or f"{span.span_id:016x}")


def _current_span() -> Any:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return context if context.is_valid else None
