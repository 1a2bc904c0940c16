"""`POST /v1/rank`: candidates get what they get alone, in one go, whole or not at all."""

import asyncio
from pathlib import Path

from conftest import ServeFakes
from support.fakes import NOT_A_NUMBER, POISON, FakeScorer
from support.fed import make_fed_scorer
from turnscore_service.settings.service import AdmissionSettings, Settings
from turnscore_wire import RankReply

CONTEXT = [{"speaker": "user", "text": "hi there"}]
OWN = {"funny": {"positive": ["haha"], "negative": ["I don't get it."]}}


async def test_the_best_candidate_stands_first_and_equals_keep_their_order(serve: ServeFakes):
    async with serve(fake=FakeScorer()) as (client, _):
        response = await client.post("/v1/rank", json={"context": CONTEXT, "candidates": ["a", "a b c", "b", "a b c"]})
    reply = RankReply.model_validate_json(response.content)
    assert [(each.index, each.combined) for each in reply.candidates] == [(1, 3), (3, 3), (0, 1), (2, 1)]
    assert reply.weights == {"fake": 1}
    assert reply.request_id == response.headers["x-request-id"]


async def test_a_ranked_candidate_has_the_scores_it_has_alone(serve: ServeFakes):
    async with serve(first=FakeScorer(), second=FakeScorer()) as (client, _):
        ranked = (await client.post("/v1/rank", json={"context": CONTEXT, "candidates": ["a", "b c"]})).json()
        for each in ranked["candidates"]:
            asked = {"context": CONTEXT, "response": ["a", "b c"][each["index"]], "cache": "bypass"}
            assert each["scores"] == (await client.post("/v1/score", json=asked)).json()["scores"]


async def test_failing_candidates_come_last_with_their_errors(serve: ServeFakes):
    async with serve(fake=FakeScorer()) as (client, _):
        candidates = [POISON, "a", NOT_A_NUMBER, "untokenizable", "a b"]
        reply = RankReply.model_validate_json((await client.post("/v1/rank", json={"candidates": candidates})).content)
        failed = await client.post("/v1/rank", json={"candidates": [POISON, NOT_A_NUMBER]})
    assert [each.index for each in reply.candidates] == [4, 1, 0, 2, 3]
    assert [each.errors["fake"].code for each in reply.candidates[2:]] == ["internal"] * 3
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal")


async def test_a_request_is_admitted_whole_or_not_at_all(serve: ServeFakes):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with serve(Settings(admission=AdmissionSettings(max_items=3)), fake=scorer) as (client, _):
        first = asyncio.create_task(client.post("/v1/score", json={"response": "a"}))
        await asyncio.to_thread(scorer.started.wait)
        refused = await client.post("/v1/rank", json={"candidates": ["b", "c", "d"]})
        scorer.gate.set()
        assert (await first).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert scorer.encoded == [1]


async def test_fed_computes_all_candidates_on_one_trunk(serve: ServeFakes, tmp_path: Path):
    scorer, backend = make_fed_scorer(tmp_path / "fed")
    candidates = ["one", "two", "three things", "two"] * 4
    async with serve(Settings(), fed=scorer) as (client, _):
        reply = (await client.post("/v1/rank", json={"context": CONTEXT, "candidates": candidates})).json()
        together, backend.tokens_fed = backend.tokens_fed, 0
        for each in reply["candidates"]:
            asked = {"context": CONTEXT, "response": candidates[each["index"]], "cache": "bypass"}
            assert each["scores"] == (await client.post("/v1/score", json=asked)).json()["scores"]
    assert together < backend.tokens_fed / 4


async def test_qualities_of_ones_own_rank_the_candidates_among_themselves(serve: ServeFakes, tmp_path: Path):
    scorer, _ = make_fed_scorer(tmp_path / "fed")
    asked = {"context": CONTEXT, "candidates": ["one", "two", "three"], "options": {"fed": {"own_qualities": OWN}}}
    async with serve(Settings(), fed=scorer) as (client, _):
        reply = RankReply.model_validate_json((await client.post("/v1/rank", json=asked)).content)
    values = [each.scores["fed"].value for each in reply.candidates]
    assert values == sorted(values, reverse=True)
    assert [each.combined for each in reply.candidates] == [100, 50, 0]
    assert [each.scores["fed"].percentile for each in reply.candidates] == [None] * 3
