"""Opik: a metric for its evaluation of threads, which asks turnscore for the dialogue."""

from typing import Any, Unpack

from turnscore_client._background import ServiceOptions
from turnscore_client._errors import needs_extra
from turnscore_client.writers._dialogues import DialogueJudge

with needs_extra("opik", "the Opik metric"):
    from opik.evaluation.metrics.conversation.conversation_thread_metric import ConversationThreadMetric
    from opik.evaluation.metrics.score_result import ScoreResult


class TurnScoreThreadMetric(ConversationThreadMetric):
    """`evaluate_threads(..., metrics=[TurnScoreThreadMetric()])`."""

    def __init__(self, *, scorer: str = "quality", track: bool = True, **given: Unpack[ServiceOptions]) -> None:
        super().__init__(name=f"turnscore.{scorer}", track=track)
        self._judge = DialogueJudge(scorer, given)

    def score(self, conversation: Any, **_: Any) -> Any:
        """The mean over the dialogue; a chatbot that said nothing is reported as failed. Raises a TurnScoreError."""
        judged = self._judge.judge(conversation)
        is_silent = judged.value is None
        return ScoreResult(
            name=self.name,
            value=0.0 if judged.value is None else judged.value,
            reason=judged.reason,
            metadata=judged.as_result(),
            scoring_failed=is_silent,
        )
