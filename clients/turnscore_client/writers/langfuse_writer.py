"""Langfuse: a score for each entry, of a trace or observation, or of a session."""

from typing import Any

from turnscore_client._errors import needs_extra
from turnscore_client.writers._entries import ScoreEntry, ScoreWriter

with needs_extra("langfuse", "the Langfuse writer"):
    from langfuse import Langfuse


class LangfuseWriter(ScoreWriter):
    """`client` is Langfuse's own; without one its LANGFUSE_* variables say where to write."""

    def __init__(self, client: Any = None) -> None:
        self._client = client or Langfuse()

    def write(self, entry: ScoreEntry) -> None:
        """Queues it with Langfuse's client, which sends it in the background."""
        ids = entry.ids
        if not entry.is_session and ids.trace_id is None:
            return
        place = (
            {"session_id": ids.session_id}
            if entry.is_session
            else {"trace_id": ids.trace_id, "observation_id": ids.span_id}
        )
        self._client.create_score(
            name=entry.name,
            value=entry.value,
            data_type="NUMERIC",
            score_id=entry.key,
            comment=entry.explanation or None,
            metadata=entry.labelled,
            **place,
        )

    def close(self) -> None:
        self._client.flush()
