"""`POST /v1/similarity`: texts against references by vectors that are batched, cached and paid for as turns are."""

import asyncio
import hashlib
import math

import numpy as np
import pytest
from support.bundles import make_encoder_bundle
from support.conditions import until
from support.fakes import FakeEncoder, FakeScorer
from turnscore_core.loaded_scorer import load_scorer
from turnscore_service.api.http.app import asks
from turnscore_service.scheduling.pipeline import SIMILARITY
from turnscore_service.settings.service import AdmissionSettings, Settings
from turnscore_wire import ErrorReply, SimilarityReply

KEY = "ts_a-slow-key-for-tests"
LONG = "a b c d e f g h"
SLOW = {"keys": {"slow": {"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "turns_per_second": 0.001, "burst": 5}}}


async def compare(client, **fields):
    response = await client.post("/v1/similarity", json=fields)
    assert response.status_code == 200, response.text
    return SimilarityReply.model_validate_json(response.content)


async def refusal(client, **fields):
    response = await client.post("/v1/similarity", json=fields)
    error = ErrorReply.model_validate_json(response.content).error
    return response.status_code, error.code, error.field


@pytest.fixture
def loaded(tmp_path):
    return load_scorer(make_encoder_bundle(tmp_path / "encoder"), "fp32")


async def test_each_text_is_compared_with_each_reference(serve):
    async with serve(encoder=FakeEncoder()) as (client, runtime):
        reply = await compare(client, texts=["a", "a b c"], references=["x y", "z", "u v w"])
        digest = runtime.models("r").models[0].digest
    assert [each.similarities for each in reply.texts] == [
        [pytest.approx(math.cos(turned), abs=1e-6) for turned in (0.5, 0, 1)],
        [pytest.approx(math.cos(turned), abs=1e-6) for turned in (0.5, 1, 0)],
    ]
    assert [each.best for each in reply.texts] == [1, 2]
    assert [each.tokens.used for each in (*reply.texts, *reply.references)] == [1, 3, 2, 1, 3]
    assert (reply.model, reply.digest) == ("encoder:1.0.0", digest)


async def test_without_references_texts_are_compared_with_each_other(serve):
    async with serve(encoder=FakeEncoder()) as (client, _):
        reply = await compare(client, texts=["a", "b c", "d", "e f g"])
        alone = await compare(client, texts=["a"])
    table = np.array([each.similarities for each in reply.texts])
    assert (table == table.T).all()
    assert table.diagonal().tolist() == [1, 1, 1, 1]
    assert [each.best for each in reply.texts] == [2, 0, 0, 1]
    assert reply.references == []
    assert (alone.texts[0].similarities, alone.texts[0].best) == ([1], None)


async def test_the_served_cosine_is_the_encoder_s_own(serve, loaded):
    async with serve(encoder=loaded.scorer) as (client, _):
        reply = await compare(client, texts=["good fine"], references=["nice", "bad ugly", "good fine", LONG])
    similarities = reply.texts[0].similarities
    assert similarities[0] > 0.9
    assert similarities[1] < -0.9
    assert (similarities[2], reply.texts[0].best) == (1, 2)
    assert reply.references[3].tokens.dropped == 2


async def test_a_similarity_does_not_depend_on_what_is_asked_with_it(serve, loaded):
    texts = [" ".join(word) for word in ("abc", "de", "xyzuv", "good", "fi")]
    async with serve(encoder=loaded.scorer) as (client, _):
        together = await compare(client, texts=texts, references=texts, cache="bypass")
        for place, text in enumerate(texts):
            for other_place, other in enumerate(texts):
                alone = await compare(client, texts=[text], references=[other], cache="bypass")
                assert alone.texts[0].similarities == [together.texts[place].similarities[other_place]]


async def test_a_text_that_was_read_before_is_not_read_again(serve):
    scorer = FakeEncoder()
    async with serve(encoder=scorer) as (client, _):
        first = await compare(client, texts=["a"], references=["b c"])
        again = await compare(client, texts=["b c"], references=["a", "d e f"])
        other = await compare(client, texts=["a"], references=["b c"], cache_namespace="other")
        bypassed = await compare(client, texts=["a"], references=["b c"], cache="bypass")
    assert [each.cached for each in (*first.texts, *first.references)] == [False, False]
    assert [each.cached for each in (*again.texts, *again.references)] == [True, True, False]
    assert again.texts[0].similarities[0] == first.texts[0].similarities[0] == bypassed.texts[0].similarities[0]
    assert [each.cached for each in other.texts] == [each.cached for each in bypassed.texts] == [False]
    assert sum(scorer.encoded) == 2 + 1 + 2 + 2


async def test_many_texts_are_refused_before_they_are_checked_one_by_one(serve):
    async with serve(encoder=FakeEncoder()) as (client, _):
        # The last one is wrong, which nobody gets to know: the count is refused first.
        assert await refusal(client, texts=["a"] * 100_000 + [""]) == (413, "too_large", "texts")
        assert await refusal(client, texts=["a"], references=["a"] * 100_000 + [""]) == (413, "too_large", "references")


async def test_without_an_encoder_there_is_nothing_that_compares(client):
    assert await refusal(client, texts=["a"]) == (404, "not_found", None)


async def test_an_encoder_is_asked_of_no_turn(serve):
    encoder, scorer = FakeEncoder(), FakeScorer()
    async with serve(fake=scorer, encoder=encoder) as (client, runtime):
        scored = (await client.post("/v1/score", json={"response": "a"})).json()
        named = (await client.post("/v1/score", json={"response": "a", "scorers": ["encoder"]})).json()
        models = {each.scorer: each.is_default for each in runtime.models("r").models}
    assert list(scored["scores"]) == ["fake"]
    assert named["error"]["field"] == "scorers.0"
    assert models == {"fake": True, "encoder": False}
    assert not encoder.encoded


async def test_a_service_may_have_nothing_but_an_encoder(serve):
    async with serve(encoder=FakeEncoder()) as (client, _):
        assert (await compare(client, texts=["a"])).texts[0].similarities == [1]
        for call, fields in (
            ("score", {"response": "a"}),
            ("rank", {"candidates": ["a"]}),
            ("score_dialogue", {"turns": [{"speaker": "system", "text": "a"}]}),
        ):
            refused = await client.post(f"/v1/{call}", json=fields)
            assert (refused.status_code, refused.json()["error"]["field"]) == (400, "scorers")


async def test_a_key_pays_for_every_text(serve):
    async with serve(Settings.model_validate({"auth": SLOW}), encoder=FakeEncoder()) as (client, _):
        client.headers["x-api-key"] = KEY
        assert (await refusal(client, texts=["a"] * 300))[0] == 413  # which costs nothing
        await compare(client, texts=["a", "b"], references=["c", "d", "e"])
        assert (await refusal(client, texts=["a"]))[:2] == (429, "overloaded")


async def test_a_flooded_encoder_sheds_comparisons_and_no_scores(serve):
    encoder = FakeEncoder()
    encoder.gate.clear()
    settings = Settings(admission=AdmissionSettings(max_items=1))
    async with serve(settings, fake=FakeScorer(), encoder=encoder) as (client, runtime):
        held = asyncio.create_task(compare(client, texts=["held"]))
        await until(lambda: len(encoder.batches) > 0)
        for number in range(40):
            assert (await refusal(client, texts=[f"a {number}"]))[0] == 429
        assert (await client.post("/v1/score", json={"response": "encoder"})).status_code == 200
        assert asks(runtime.pipeline().model_set, SIMILARITY, b"{}", "encoder")
        assert not asks(runtime.pipeline().model_set, "score", b'"encoder"', "encoder")
        encoder.gate.set()
        await held
