"""MLflow: feedback for each entry, on a trace or one of its spans; a session's on the trace that ends it."""

from turnscore_client._errors import needs_extra
from turnscore_client.writers._entries import ScoreEntry, ScoreWriter

with needs_extra("mlflow", "the MLflow writer"):
    import mlflow
    from mlflow.entities import AssessmentSource


class MlflowWriter(ScoreWriter):
    """Writes where MLFLOW_TRACKING_URI says."""

    def write(self, entry: ScoreEntry) -> None:
        """Logs it, once MLflow has stored the traces of this process."""
        trace_id = entry.ids.trace_id
        if trace_id is None:
            return
        mlflow.flush_trace_async_logging()
        model = str(entry.metadata.get("turnscore.model", "turnscore"))
        mlflow.log_feedback(
            trace_id=trace_id if trace_id.startswith("tr-") else f"tr-{trace_id}",
            span_id=None if entry.is_session else entry.ids.span_id,
            name=f"{entry.name}.session" if entry.is_session else entry.name,
            value=entry.value,
            rationale=entry.explanation or None,
            source=AssessmentSource(source_type="CODE", source_id=model),
            metadata={name: str(value) for name, value in entry.labelled.items()},
        )

    def close(self) -> None:
        """Nothing waits."""
