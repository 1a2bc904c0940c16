"""DeepEval: a conversational metric, whose score is the mean over the chatbot's turns."""

import asyncio
from typing import Any

from turnscore_client._errors import needs_extra
from turnscore_client.writers._dialogues import DialogueJudge

with needs_extra("deepeval", "the DeepEval metric"):
    from deepeval.metrics import BaseConversationalMetric


class TurnScoreMetric(BaseConversationalMetric):
    """`evaluate([test_case], [TurnScoreMetric(threshold=0.5)])`: successful at the threshold and above."""

    def __init__(
        self, threshold: float = 0.5, *, scorer: str = "quality", url: str | None = None, api_key: str | None = None
    ) -> None:
        # DeepEval makes a new metric for each dialogue, from the attributes that are named as these arguments.
        self.threshold = threshold
        self.scorer = scorer
        self.url = url
        self.api_key = api_key
        self._judge = DialogueJudge(scorer, {"url": url, "api_key": api_key})

    def measure(self, test_case: Any, *_: object, **__: object) -> float:
        """The mean; 0 for a chatbot that said nothing. Raises a TurnScoreError."""
        judged = self._judge.judge([{"role": turn.role, "content": turn.content} for turn in test_case.turns])
        self.score = 0.0 if judged.value is None else judged.value
        self.reason = judged.reason
        self.score_breakdown = {f"turn {place}": score.value for place, score in judged.turns.items()}
        self.success = self.score >= self.threshold
        return self.score

    async def a_measure(self, test_case: Any, *_: object, **__: object) -> float:
        """The same for asyncio."""
        return await asyncio.to_thread(self.measure, test_case)

    def is_successful(self) -> bool:
        """Whether the last dialogue reached the threshold."""
        return bool(self.success)

    @property
    def __name__(self) -> str:
        return f"turnscore {self.scorer}"
