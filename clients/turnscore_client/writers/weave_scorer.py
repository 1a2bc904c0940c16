"""W&B Weave: a scorer for evaluations and monitors, of one reply or of a whole dialogue."""

from typing import Any

from pydantic import PrivateAttr

from turnscore_client._errors import needs_extra
from turnscore_client.writers._dialogues import DialogueJudge

with needs_extra("weave", "the Weave scorer"):
    import weave


class TurnScoreScorer(weave.Scorer):
    """`weave.Evaluation(dataset=rows, scorers=[TurnScoreScorer()])`, its rows with OpenAI's `messages`.

    The output is the reply to the messages, or messages that follow them. The result has `value`, `percentile`, `min`
    and `turns`, over the turns of the output.
    """

    scorer: str = "quality"
    url: str | None = None
    _judge: DialogueJudge | None = PrivateAttr(default=None)

    @weave.op  # type: ignore[untyped-decorator]
    def score(self, *, output: Any, messages: list[dict[str, Any]] | None = None, **_: Any) -> dict[str, Any]:
        """Raises a TurnScoreError."""
        if self._judge is None:
            self._judge = DialogueJudge(self.scorer, {"url": self.url})
        before = list(messages or [])
        answered = output if isinstance(output, list) else [{"role": "assistant", "content": str(output)}]
        return self._judge.judge([*before, *answered]).as_result()
