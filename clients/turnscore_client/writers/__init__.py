"""Writers: put scores where a team looks at its traces. A module for each tool; none is imported here.

tool           module                           what it gives
├── Langfuse   langfuse_writer                  LangfuseWriter
├── MLflow     mlflow_writer                    MlflowWriter
├── LangSmith  langsmith_writer                 LangSmithWriter
├── Phoenix    phoenix_writer                   PhoenixWriter
├── Opik       opik_writer, opik_metric         OpikWriter, TurnScoreThreadMetric
├── Weave      weave_scorer                     TurnScoreScorer
└── DeepEval   deepeval_metric                  TurnScoreMetric

A writer is an integration's `on_scored`; `turnscore score --to NAME` takes it by name. The metrics and the scorer
are no writers: their tools ask them.
"""

from turnscore_client.writers._entries import ScoreEntry, ScoreWriter, dialogue_entries, open_writer, turn_entries

__all__ = ["ScoreEntry", "ScoreWriter", "dialogue_entries", "open_writer", "turn_entries"]
