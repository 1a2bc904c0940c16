"""Phoenix: an annotation for each entry, on a span or a session."""

from typing import Any

from turnscore_client._errors import needs_extra
from turnscore_client.writers._entries import ScoreEntry, ScoreWriter

with needs_extra("phoenix", "the Phoenix writer"):
    from phoenix.client import Client


class PhoenixWriter(ScoreWriter):
    """`client` is Phoenix's own; without one PHOENIX_COLLECTOR_ENDPOINT and PHOENIX_API_KEY say where to write."""

    def __init__(self, client: Any = None) -> None:
        self._client = client or Client()

    def write(self, entry: ScoreEntry) -> None:
        """Sends it; an annotation with the same identifier is replaced."""
        given = {
            "annotation_name": entry.name,
            "annotator_kind": "CODE",
            "score": entry.value,
            "label": entry.label,
            "explanation": entry.explanation or None,
            "metadata": dict(entry.metadata),
            "identifier": entry.key,
        }
        if entry.is_session and entry.ids.session_id is not None:
            self._client.sessions.add_session_annotation(session_id=entry.ids.session_id, sync=True, **given)
        elif not entry.is_session and entry.ids.span_id is not None:
            self._client.spans.add_span_annotation(span_id=entry.ids.span_id, sync=True, **given)

    def close(self) -> None:
        """Nothing waits."""
