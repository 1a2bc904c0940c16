"""A live conversation with the real service: BentoML's process, uvicorn's WebSocket, the starter bundles."""

import json

import pytest
from support.fakes import say
from support.processes import RunningService
from turnscore_client import TurnScoreClient
from websockets.sync.client import connect

pytestmark = pytest.mark.e2e

TURNS = [
    ("system", "hello! how was your day?"),
    ("user", "nothing much, i was at work until six"),
    ("system", "ok."),
    ("user", "and you?"),
    ("system", "i hiked up a volcano and nearly lost my hat. ever been on one?"),
    ("user", "no, never! which one was it?"),
    ("system", "it was etna, in sicily. there was smoke, and the view went all the way to the sea."),
]

# A dialogue's turns share batches, and FED's even a row; those of a conversation are alone: the last bits differ.
TOLERANCE = {"engagement": 2.0**-22, "sentiment_stop": 2.0**-22, "fed": 1e-6}


def test_a_conversation_says_at_its_end_what_score_dialogue_says(service: RunningService, client: TurnScoreClient):
    with connect(service.url.replace("http", "ws") + "/v1/conversations") as socket:
        socket.send(json.dumps({"open": {"scorers": list(TOLERANCE)}}))
        socket.recv()
        replies = [say(socket, speaker, text) for speaker, text in TURNS]
    scored = [reply.scored for reply in replies if reply.scored is not None]
    whole = client.score_dialogue(TURNS, scorers=list(TOLERANCE))
    assert [each.index for each in scored] == [turn.index for turn in whole.turns] == [0, 2, 4, 6]
    for live, turn in zip(scored, whole.turns, strict=True):
        assert list(live.scores) == list(turn.scores) == list(TOLERANCE)
        for name, score in turn.scores.items():
            assert live.scores[name].tokens == score.tokens
            assert live.scores[name].value == pytest.approx(score.value, abs=TOLERANCE[name])
    for name, aggregate in whole.dialogue.items():
        live_aggregate = scored[-1].dialogue[name]
        assert live_aggregate.turns == aggregate.turns == (3 if name == "engagement" else 4)
        assert live_aggregate.mean == pytest.approx(aggregate.mean, abs=TOLERANCE[name])
