"""Opik: a feedback score for each entry, on a span, a trace or a thread."""

from typing import Any

from turnscore_client._errors import needs_extra
from turnscore_client.writers._entries import ScoreEntry, ScoreWriter

with needs_extra("opik", "the Opik writer"):
    from opik import Opik


class OpikWriter(ScoreWriter):
    """`client` is Opik's own; without one its OPIK_* variables say where to write."""

    def __init__(self, client: Any = None) -> None:
        self._client = client or Opik()

    def write(self, entry: ScoreEntry) -> None:
        ids = entry.ids
        score: dict[str, Any] = {
            "name": entry.name,
            "value": entry.value,
            "reason": entry.explanation or None,
            "category_name": entry.label,
        }
        if entry.is_session:
            if ids.session_id is not None:
                self._client.log_threads_feedback_scores([{**score, "id": ids.session_id}])
        elif ids.span_id is not None:
            self._client.log_spans_feedback_scores([{**score, "id": ids.span_id}])
        elif ids.trace_id is not None:
            self._client.log_traces_feedback_scores([{**score, "id": ids.trace_id}])

    def close(self) -> None:
        self._client.flush()
