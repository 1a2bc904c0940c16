"""The real service, sentiment/stop: in a pleasant dialogue a hostile or broken response gets less than a fitting one.

The dialogues, of fitting_and_bad.json, were written for this test; no set that the model was trained on holds them.
"""

import json
from pathlib import Path

import pytest
from turnscore_client import TurnScoreClient

pytestmark = pytest.mark.e2e

SPEAKERS = ("user", "system", "user")

# Three turns, a fitting response, a bad one.
PAIRS = json.loads(Path(__file__).with_name("fitting_and_bad.json").read_text(encoding="utf-8"))
LEAST_IN_ORDER = 9


def test_bad_responses_get_less_than_fitting_ones(client: TurnScoreClient):
    differences = []
    for pair in PAIRS:
        spoken = list(zip(SPEAKERS, pair["context"], strict=True))
        scores = [
            client.score(context=spoken, response=response, scorers=["sentiment_stop"]).scores["sentiment_stop"]
            for response in (pair["fitting"], pair["bad"])
        ]
        differences.append(scores[0].value - scores[1].value)
    assert sum(difference > 0 for difference in differences) >= LEAST_IN_ORDER, differences
