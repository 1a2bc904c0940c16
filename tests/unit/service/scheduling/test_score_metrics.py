"""What the scores of turns are like, for metrics."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from conftest import ServeFakes
from prometheus_client import REGISTRY
from support.fakes import FakeReaction, FakeScorer
from turnscore_service import metrics
from turnscore_service.settings.service import Settings

KEY = "ts_a-tenant-key-for-tests"
AUTH = {name: {"sha256": hashlib.sha256(f"{KEY}{name}".encode()).hexdigest()} for name in ("shop", "bank")}
HELLO = {"speaker": "user", "text": "hello"}
HI = {"speaker": "system", "text": "hi"}


def read(series: str, tenant: str = "", **labels: str) -> float:
    metrics.write_out()
    named = {"scorer": "fake", "model": "fake:1.0.0", "tenant": tenant, **labels}
    return REGISTRY.get_sample_value(f"turnscore_{series}", named) or 0.0


class Since:
    """What a series grew by since this was made."""

    def __init__(self, tenant: str = "") -> None:
        self._tenant = tenant
        self._before: dict[Any, float] = {}
        for series, labels in SERIES:
            self._before[series, *labels.items()] = read(series, tenant, **labels)

    def __call__(self, series: str, **labels: str) -> float:
        return read(series, self._tenant, **labels) - self._before[series, *labels.items()]


SERIES: list[tuple[str, Mapping[str, str]]] = [
    *((name, {}) for name in ("live_dialogues_total", "cut_turns_total", "not_computable_turns_total")),
    *((name, {}) for name in ("live_tokens_total", "live_chars_total")),
    *(("live_turns_total", {"label": label}) for label in ("low", "fair", "good", "none")),
    *(("score_percentile_bucket", {"le": f"{le}.0"}) for le in range(10, 101, 10)),
    ("score_percentile_count", {}),
    ("score_percentile_sum", {}),
]


async def test_the_signals_of_user_turns_are_counted_for_each_model(serve: ServeFakes):
    def counts() -> dict[str, float]:
        who = {"scorer": "reaction", "model": "reaction:1.0.0", "tenant": ""}
        return {each: read("user_signals_total", **who, signal=each) for each in ("frustrated", "pleased")}

    before = counts()
    async with serve(fake=FakeScorer(), reaction=FakeReaction()) as (client, _):
        turns = [{**HELLO, "text": text} for text in ("a", "a b c", "a b c d e")]
        for _ in range(2):  # the second time from the cache
            await client.post("/v1/score_dialogue", json={"turns": turns, "scorers": ["reaction"]})
        scraped = (await client.get("/metrics")).text
    assert {each: now - before[each] for each, now in counts().items()} == {"frustrated": 4, "pleased": 4}
    assert 'turnscore_user_signals_total{model="reaction:1.0.0",scorer="reaction",signal="frustrated",' in scraped


async def test_a_live_turn_is_counted_once_by_its_score(serve: ServeFakes):
    fake = FakeScorer()
    fake.threshold = 0.025
    since = Since()
    async with serve(fake=fake) as (client, _):
        await client.post("/v1/score", json={"context": [HELLO], "response": "one two"})
        reply = (await client.post("/v1/score", json={"context": [HELLO, HI, HELLO], "response": "a b c"})).json()
    assert (since("live_turns_total", label="low"), since("live_turns_total", label="fair")) == (1, 1)
    assert since("live_dialogues_total") == 1
    percentile = reply["scores"]["fake"]["percentile"]
    assert since("score_percentile_count") == 2
    assert since("score_percentile_sum") == pytest.approx(percentile / 3 * 5)
    assert since("score_percentile_bucket", le="10.0") == 2 * (percentile <= 10)
    assert since("live_tokens_total") == 5
    assert since("live_chars_total") == len("helloone twohellohihelloa b c")


async def test_every_way_of_saying_a_turn_counts_and_ranking_does_not(serve: ServeFakes):
    since = Since()
    turns = [HELLO, HI, HELLO, {"speaker": "system", "text": "well then"}]
    async with serve(fake=FakeScorer()) as (client, _):
        await client.post("/v1/rank", json={"context": [HELLO], "candidates": ["a", "b c"]})
        assert since("live_turns_total", label="none") == 0
        await client.post("/v1/score_dialogue", json={"turns": turns})
        assert (since("live_turns_total", label="none"), since("live_dialogues_total")) == (2, 1)
        items = [{"context": [HELLO], "response": "b c"}, {"context": [HELLO], "response": "d"}, {"response": 7}]
        await client.post("/v1/score_batch", json={"items": items})
    assert (since("live_turns_total", label="none"), since("live_dialogues_total")) == (4, 3)


async def test_a_score_from_the_cache_is_a_turn_that_made_no_tokens(serve: ServeFakes):
    since = Since()
    async with serve(fake=FakeScorer()) as (client, _):
        for _ in range(3):
            await client.post("/v1/score", json={"context": [HELLO], "response": "a b"})
    assert (since("live_turns_total", label="none"), since("live_tokens_total")) == (3, 2)


async def test_only_named_tenants_have_a_label(serve: ServeFakes):
    settings = Settings.model_validate({"auth": {"keys": AUTH}, "metric_tenants": "shop"})
    shop, other, unsigned = Since("shop"), Since("other"), Since()
    async with serve(settings, fake=FakeScorer()) as (client, _):
        for name in ("shop", "bank"):
            sent = {"context": [HELLO], "response": "a b"}
            reply = await client.post("/v1/score", json=sent, headers={"x-api-key": KEY + name})
            assert reply.status_code == 200
    found = [each("live_turns_total", label="none") for each in (shop, other, unsigned)]
    assert (found, read("live_turns_total", "bank", label="none")) == ([1, 1, 0], 0)
