"""The client against the real HTTP API in this process: client, mock and service refuse the same things."""

import httpx
import pytest
from support.fakes import FakeReaction, FakeScorer
from turnscore_client import AsyncTurnScoreClient, InvalidRequestError, TurnScoreError
from turnscore_client.testing import MockTurnScore
from turnscore_service.api.http.app import create_app

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
