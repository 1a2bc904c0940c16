"""The client against the real HTTP door in this process: client, mock and door refuse the same things."""

import httpx
import pytest
from support.fakes import POISON, FakeScorer
from turnscore_client import (
    AsyncTurnScoreClient,
    ErrorReply,
    InvalidRequestError,
    TurnScoreError,
)
from turnscore_client.testing import MockTurnScore
from turnscore_service.api.http.app import create_app

WRONG_FIELDS = [
    ("score", {"response": ""}),
    ("score", {"response": "a\x00b"}),
    ("score", {"response": "a", "context": [{"speaker": "bot", "text": "hi"}]}),
    ("score", {"response": "a", "scorers": []}),
    ("score", {"response": "a", "options": {"fake": 7}}),
    ("score", {"response": "a", "deadline_ms": 600_001}),
    ("score_batch", {"items": []}),
    ("rank", {"candidates": []}),
]

REFUSED_BY_THE_SERVICE = [
    ("score", {"response": "a", "scorers": ["fake", "mood"]}),
    ("score_dialogue", {"turns": [("user", "hi")]}),
    ("score_dialogue", {"turns": [("system", "hi")], "scorers": ["mood"]}),
    ("rank", {"candidates": ["a"], "scorers": ["mood"]}),
    ("rank", {"candidates": ["a"], "weights": {"mood": 1}}),
]


def client_of(runtime) -> AsyncTurnScoreClient:
    return AsyncTurnScoreClient("http://turnscore.test", transport=httpx.ASGITransport(create_app(runtime)))


async def refusal(client: AsyncTurnScoreClient, method: str, fields: dict) -> TurnScoreError:
    with pytest.raises(TurnScoreError) as raised:
        await getattr(client, method)(**fields)
    return raised.value


@pytest.mark.parametrize(("method", "fields"), WRONG_FIELDS)
async def test_the_client_refuses_a_wrong_field_as_the_door_does(serve, mock, method, fields):
    async with mock.async_client() as client:
        here = await refusal(client, method, fields)
    async with serve(fake=FakeScorer()) as (raw, _):
        there = ErrorReply.model_validate_json((await raw.post(f"/v1/{method}", json=fields)).content)
    assert isinstance(here, InvalidRequestError)
    assert (here.code, here.field) == (there.error.code, there.error.field)


@pytest.mark.parametrize(("method", "fields"), REFUSED_BY_THE_SERVICE)
async def test_the_mock_refuses_what_the_door_refuses(serve, method, fields):
    async with MockTurnScore({"fake": 0.5}).async_client() as client:
        mocked = await refusal(client, method, fields)
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        real = await refusal(client, method, fields)
    assert type(mocked) is type(real) is InvalidRequestError
    assert mocked.field == real.field


async def test_every_method_reads_the_doors_replies(serve):
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        reply = await client.score(context=[("user", "hi")], response="two words", request_id="r-1")
        assert (reply.request_id, reply.scores["fake"].value) == ("r-1", 0.02)
        batch = await client.score_batch([{"response": "one"}, {"response": POISON}])
        assert isinstance(batch.results[1], ErrorReply)
        dialogue = await client.score_dialogue([("user", "hi"), ("system", "two words")])
        assert dialogue.dialogue["fake"].mean == 0.02
        ranked = await client.rank(["one", "two words", POISON], context=[("user", "hi")])
        assert [(each.index, each.combined) for each in ranked.candidates] == [(1, 2.0), (0, 1.0), (2, None)]
        assert [model.scorer for model in (await client.models()).models] == ["fake"]
