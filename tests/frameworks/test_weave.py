"""W&B Weave, the real package without its server: an evaluation asks the scorer."""

import os

import pytest
from support.framework_service import ANSWERED, ASKED, Service

os.environ["WEAVE_DISABLED"] = "true"
weave = pytest.importorskip("weave", reason="Weave is not installed: make integrations")

from turnscore_client.writers.weave_scorer import TurnScoreScorer  # noqa: E402

ROWS = [{"messages": [{"role": "user", "content": ASKED}]}]


async def test_an_evaluation_scores_replies_in_their_dialogue(service: Service):
    @weave.op
    def chatbot(messages: list) -> str:
        return ANSWERED

    evaluation = weave.Evaluation(dataset=ROWS, scorers=[TurnScoreScorer(url=service.url)])
    result = await evaluation.evaluate(chatbot)
    assert result["TurnScoreScorer"]["value"]["mean"] == pytest.approx(0.7)
    [body] = service.asked
    assert body["turns"] == [{"speaker": "user", "text": ASKED}, {"speaker": "system", "text": ANSWERED}]
