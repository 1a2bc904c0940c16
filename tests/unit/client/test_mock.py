"""The mock that users test with: it checks, answers and records as the service would."""

import pytest
from turnscore_client import InvalidRequestError
from turnscore_client.testing import MockTurnScore


def test_messages_are_answered_by_their_places(mock):
    image = {"role": "user", "content": [{"type": "image_url"}]}
    messages = [{"role": "system", "content": "p"}, image, {"role": "assistant", "content": "hello"}]
    with mock.client() as client:
        scored, dialogue = client.score(messages=messages), client.score_dialogue(messages=messages)
        ranking = client.rank(["a"], messages=messages)
        with pytest.raises(InvalidRequestError) as raised:
            client.score_dialogue(messages=messages[:2])
    assert (scored.index, dialogue.turns[0].index) == (2, 2)
    assert scored.skipped == dialogue.skipped == ranking.skipped == 1
    assert raised.value.field == "messages"


def test_a_call_over_grpc_is_recorded_as_the_same_call_over_http(mock):
    with mock.client(api_key="k") as over_http, mock.grpc_client(api_key="k") as over_grpc:
        for client in (over_http, over_grpc):
            client.score(context=[("user", "hi")], response="a", options={"engagement": {"x": 1}}, request_id="r-1")
            client.models()
    first, second = mock.requests[:2], mock.requests[2:]
    for mine, same in zip(first, second, strict=True):
        assert (mine.method, mine.path, mine.body) == (same.method, same.path, same.body)
        assert mine.headers["authorization"] == same.headers["authorization"] == "Bearer k"


def test_scorers_of_user_turns_answer_for_them_and_for_nothing_else():
    mock = MockTurnScore({"quality": 0.5, "reaction": 0.2}, signals={"reaction": ["frustrated"]})
    with mock.client() as client:
        reply = client.score_dialogue([("user", "no"), ("system", "sorry")], scorers=["quality", "reaction"])
        assert [(turn.index, list(turn.scores)) for turn in reply.turns] == [(0, ["reaction"]), (1, ["quality"])]
        assert reply.turns[0].scores["reaction"].signals == ["frustrated"]
        assert list(client.score(response="sorry").scores) == ["quality"]
        assert [(each.speaker, each.is_default) for each in client.models().models] == [
            ("system", True),
            ("user", False),
        ]
        for ask in (
            lambda: client.rank(["a"], scorers=["reaction"]),
            lambda: client.score(response="a", scorers=["reaction"]),
        ):
            with pytest.raises(InvalidRequestError, match="reaction scores turns of the user"):
                ask()
