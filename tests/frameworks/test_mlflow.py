"""MLflow, the real package, on a SQLite file: feedback is written and read back."""

from pathlib import Path

import pytest
from support.studies import AGGREGATES, scored
from turnscore_client.integrations import TurnIds

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: make integrations")

from turnscore_client.writers import dialogue_entries  # noqa: E402
from turnscore_client.writers.mlflow_writer import MlflowWriter  # noqa: E402


def test_feedback_on_turns_and_sessions_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # MLflow writes its artifacts into the current folder
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment("chatbot")
    with mlflow.start_span("reply") as span:
        span.set_outputs("hello")
    writer = MlflowWriter()
    writer(scored(TurnIds(trace_id=span.trace_id, span_id=span.span_id)))
    writer(scored(TurnIds(session_id="chat 7")))  # a turn that no trace has
    session = TurnIds(trace_id=span.trace_id.removeprefix("tr-"), session_id="chat 7")  # OpenTelemetry's own id
    for entry in dialogue_entries(AGGREGATES, session):
        writer.write(entry)
    writer.close()
    kept = {each.name: each for each in mlflow.get_trace(span.trace_id).info.assessments}
    assert kept.keys() == {"turnscore.quality", "turnscore.quality.session"}
    turn, whole = kept["turnscore.quality"], kept["turnscore.quality.session"]
    assert (turn.value, turn.span_id, turn.rationale) == (0.25, span.span_id, "12 of 100 reference turns score lower")
    assert (turn.source.source_type, turn.source.source_id) == ("CODE", "quality:1.0.0")
    assert (turn.metadata["turnscore.percentile"], turn.metadata["label"]) == ("12.0", "low")
    assert (whole.value, whole.span_id) == (0.5, None)
