"""Trace context: reads a caller's `traceparent` (W3C Trace Context, level 1). What is no such header is left out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

TRACEPARENT = "traceparent"
_PATTERN = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class CallerSpan:
    """The span that a call belongs to."""

    trace_id: int
    span_id: int
    is_sampled: bool


def caller_span(carrier: Mapping[str, str]) -> CallerSpan | None:
    """The caller's span, from a request's headers or a call's metadata."""
    sent = carrier.get(TRACEPARENT)
    matched = None if sent is None else _PATTERN.fullmatch(sent)
    if matched is None or (matched[1] == "00" and matched[5]):
        return None
    return CallerSpan(int(matched[2], 16), int(matched[3], 16), bool(int(matched[4], 16) & _SAMPLED))
