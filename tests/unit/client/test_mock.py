"""The mock that users test with: it checks, answers, refuses and records as the service would."""

import httpx
import pytest
from support.fakes import FakeReaction, FakeScorer
from turnscore_client import AsyncTurnScoreClient, InvalidRequestError, TurnScoreError
from turnscore_client.testing import MockTurnScore
from turnscore_service.api.http.app import create_app


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


REFUSED_BY_THE_SERVICE = [
    ("score", {"response": "a", "scorers": ["fake", "mood"]}),
    ("score_dialogue", {"turns": [("user", "hi")]}),
    ("score_dialogue", {"turns": [("system", "hi")], "scorers": ["mood"]}),
    ("rank", {"candidates": ["a"], "scorers": ["mood"]}),
    ("rank", {"candidates": ["a"], "weights": {"mood": 1}}),
    ("score", {"response": "a", "scorers": ["fake", "reaction"]}),
    ("score", {"response": "a", "speaker": "user", "scorers": ["fake"]}),
    ("score", {"messages": [{"role": "user", "content": "a"}], "scorers": ["fake"]}),
    ("score_dialogue", {"turns": [("user", "hi")], "scorers": ["fake", "reaction"]}),
    ("score_dialogue", {"turns": [("system", "hi")], "scorers": ["reaction"]}),
]


def client_of(runtime):
    return AsyncTurnScoreClient("http://turnscore.test", transport=httpx.ASGITransport(create_app(runtime)))


async def refusal(client, method, fields):
    with pytest.raises(TurnScoreError) as raised:
        await getattr(client, method)(**fields)
    return raised.value


@pytest.mark.parametrize(("method", "fields"), REFUSED_BY_THE_SERVICE)
async def test_the_mock_refuses_what_the_service_refuses(serve, method, fields):
    mock = MockTurnScore({"fake": 0.5, "reaction": 0.5}, signals={"reaction": ["frustrated"]})
    async with mock.async_client() as client:
        mocked = await refusal(client, method, fields)
    async with serve(fake=FakeScorer(), reaction=FakeReaction()) as (_, runtime), client_of(runtime) as client:
        real = await refusal(client, method, fields)
    assert type(mocked) is type(real) is InvalidRequestError
    assert mocked.field == real.field
