"""What the scores of turns are like, for metrics."""

import hashlib

import pytest
from support.fakes import FakeReaction, FakeScorer, Since
from turnscore_service.settings.service import Settings

KEY = "ts_a-tenant-key-for-tests"
AUTH = {name: {"sha256": hashlib.sha256(f"{KEY}{name}".encode()).hexdigest()} for name in ("shop", "bank")}
HELLO = {"speaker": "user", "text": "hello"}
HI = {"speaker": "system", "text": "hi"}


def since(tenant=""):
    return Since(scorer="fake", model="fake:1.0.0", tenant=tenant)


async def test_the_signals_of_user_turns_are_counted_for_each_model(serve):
    grown = Since("user_signals_", scorer="reaction", model="reaction:1.0.0", tenant="")
    async with serve(fake=FakeScorer(), reaction=FakeReaction()) as (client, _):
        turns = [{**HELLO, "text": text} for text in ("a", "a b c", "a b c d e")]
        for _ in range(2):  # the second time from the cache
            await client.post("/v1/score_dialogue", json={"turns": turns, "scorers": ["reaction"]})
        scraped = (await client.get("/metrics")).text
    assert [grown("total", signal=each) for each in ("frustrated", "pleased")] == [4, 4]
    assert 'turnscore_user_signals_total{model="reaction:1.0.0",scorer="reaction",signal="frustrated",' in scraped


async def test_a_live_turn_is_counted_once_by_its_score(serve):
    fake = FakeScorer()
    fake.threshold = 0.025
    grown = since()
    async with serve(fake=fake) as (client, _):
        await client.post("/v1/score", json={"context": [HELLO], "response": "one two"})
        reply = (await client.post("/v1/score", json={"context": [HELLO, HI, HELLO], "response": "a b c"})).json()
    assert (grown("live_turns_total", label="low"), grown("live_turns_total", label="fair")) == (1, 1)
    assert grown("live_dialogues_total") == 1
    percentile = reply["scores"]["fake"]["percentile"]
    assert grown("score_percentile_count") == 2
    assert grown("score_percentile_sum") == pytest.approx(percentile / 3 * 5)
    assert grown("score_percentile_bucket", le="10.0") == 2 * (percentile <= 10)
    assert grown("live_tokens_total") == 5
    assert grown("live_chars_total") == len("helloone twohellohihelloa b c")


async def test_every_way_of_saying_a_turn_counts_and_ranking_does_not(client):
    grown = since()
    turns = [HELLO, HI, HELLO, {"speaker": "system", "text": "well then"}]
    await client.post("/v1/rank", json={"context": [HELLO], "candidates": ["a", "b c"]})
    assert grown("live_turns_total", label="none") == 0
    await client.post("/v1/score_dialogue", json={"turns": turns})
    assert (grown("live_turns_total", label="none"), grown("live_dialogues_total")) == (2, 1)
    items = [{"context": [HELLO], "response": "b c"}, {"context": [HELLO], "response": "d"}, {"response": 7}]
    await client.post("/v1/score_batch", json={"items": items})
    assert (grown("live_turns_total", label="none"), grown("live_dialogues_total")) == (4, 3)


async def test_a_score_from_the_cache_is_a_turn_that_made_no_tokens(client):
    grown = since()
    for _ in range(3):
        await client.post("/v1/score", json={"context": [HELLO], "response": "a b"})
    assert (grown("live_turns_total", label="none"), grown("live_tokens_total")) == (3, 2)


async def test_only_named_tenants_have_a_label(serve):
    settings = Settings.model_validate({"auth": {"keys": AUTH}, "metric_tenants": "shop"})
    tenants = [since(each) for each in ("shop", "other", "", "bank")]
    async with serve(settings, fake=FakeScorer()) as (client, _):
        for name in ("shop", "bank"):
            sent = {"context": [HELLO], "response": "a b"}
            reply = await client.post("/v1/score", json=sent, headers={"x-api-key": KEY + name})
            assert reply.status_code == 200
    assert [each("live_turns_total", label="none") for each in tenants] == [1, 1, 0, 0]
