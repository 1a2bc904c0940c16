"""LangSmith: feedback for each entry, on a run; a session's on its thread's last run."""

from typing import Any
from uuid import UUID

from turnscore_client._errors import needs_extra
from turnscore_client.writers._entries import ScoreEntry, ScoreWriter

with needs_extra("langsmith", "the LangSmith writer"):
    from langsmith import Client


class LangSmithWriter(ScoreWriter):
    """`client` is LangSmith's own; without one its LANGSMITH_* variables say where to write."""

    def __init__(self, client: Any = None) -> None:
        self._client = client or Client()

    def write(self, entry: ScoreEntry) -> None:
        run_id = entry.ids.span_id or entry.ids.trace_id
        if run_id is None:
            return
        self._client.create_feedback(
            run_id=UUID(run_id),
            key=f"{entry.name}.session" if entry.is_session else entry.name,
            score=entry.value,
            value=entry.label,
            comment=entry.explanation or None,
            source_info=dict(entry.metadata),
            feedback_source_type="model",
            feedback_id=UUID(hex=entry.key),
        )

    def close(self) -> None:
        self._client.flush()
