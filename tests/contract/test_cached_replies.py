"""What callers see of the cache: equal scores, computed once, and each caller's own deadline."""

import asyncio

import pytest
from support.conditions import until
from support.fakes import POISON, FakeScorer, sample
from support.fed import make_fed_scorer
from turnscore_service.settings.service import AdmissionSettings, Settings

ANSWERED = 200


async def score(client, response="a b", **asked):
    return await client.post("/v1/score", json={"response": response, **asked})


def joins():
    return sample("cache_joins_total", scorer="fake")


@pytest.fixture
def held():
    """A scorer whose runtime waits until its gate is opened."""
    scorer = FakeScorer()
    scorer.gate.clear()
    yield scorer
    scorer.gate.set()


async def test_a_repeat_is_answered_alike_and_without_the_scorer(serve):
    scorer = FakeScorer()
    async with serve(fake=scorer) as (client, _):
        first = (await score(client)).json()["scores"]["fake"]
        again = (await score(client)).json()
    assert again["scores"]["fake"] == {**first, "cached": True}
    assert (first["cached"], scorer.encoded, len(scorer.batches)) == (False, [1], 1)
    assert again["timing_ms"]["inference"] == again["timing_ms"]["tokenize"] == 0


async def test_another_response_or_context_or_option_is_no_repeat(serve):
    scorer = FakeScorer()
    async with serve(fake=scorer) as (client, _):
        for asked in (
            {"response": "a b"},
            {"response": "a", "context": [{"speaker": "user", "text": "b"}]},
            {"response": "a b", "context": [{"speaker": "user", "text": ""}]},
            {"response": "a b", "context": [{"speaker": "system", "text": ""}]},
            {"response": "a b", "options": {"fake": {"known": 1}}},
            {"response": "a b", "cache_namespace": "mine"},
        ):
            assert not (await score(client, **asked)).json()["scores"]["fake"]["cached"]
    assert len(scorer.encoded) == 6


async def test_every_call_finds_what_another_has_computed(serve):
    scorer = FakeScorer()
    turns = [{"speaker": "user", "text": "q"}, {"speaker": "system", "text": "a b c"}]
    asked = {"context": turns[:1], "response": "a b c"}
    async with serve(fake=scorer) as (client, _):
        await client.post("/v1/score_dialogue", json={"turns": turns})
        single = (await client.post("/v1/score", json=asked)).json()["scores"]
        batch = (await client.post("/v1/score_batch", json={"items": [asked, asked]})).json()["results"]
        rank = (await client.post("/v1/rank", json={"context": turns[:1], "candidates": ["a b c"]})).json()
    scores = [single, batch[0]["scores"], batch[1]["scores"], rank["candidates"][0]["scores"]]
    assert all(each["fake"]["cached"] for each in scores)
    assert scorer.encoded == [1]


async def test_a_thousand_equal_requests_at_once_are_one_inference(serve, held):
    before = joins()
    async with serve(fake=held) as (client, _):
        asked = [asyncio.create_task(score(client)) for _ in range(1000)]
        await until(lambda: joins() == before + 999)
        held.gate.set()
        replies = [(await each).json()["scores"]["fake"] for each in asked]
    assert (held.encoded, held.batches) == ([1], [[2]])
    assert replies == [replies[0]] * 1000
    assert replies[0]["value"] == 0.02


async def test_equal_items_of_one_request_are_computed_once(serve):
    scorer = FakeScorer()
    items = [{"response": text} for text in ("a b", "a", "a b", "a b")]
    async with serve(fake=scorer) as (client, _):
        results = (await client.post("/v1/score_batch", json={"items": items})).json()["results"]
    assert [each["scores"]["fake"]["value"] for each in results] == [0.02, 0.01, 0.02, 0.02]
    assert scorer.encoded == [2]


async def test_a_failure_goes_to_everyone_who_waits_and_is_not_kept(serve, held):
    before = joins()
    async with serve(fake=held) as (client, _):
        asked = [asyncio.create_task(score(client, POISON)) for _ in range(5)]
        await until(lambda: joins() == before + 4)
        held.gate.set()
        assert [(await each).json()["error"]["code"] for each in asked] == ["internal"] * 5
        assert len(held.batches) == 1
        assert (await score(client, POISON)).json()["error"]["code"] == "internal"
    assert len(held.batches) == 2


async def test_who_began_may_leave_and_those_who_wait_are_answered(serve, held):
    before = joins()
    async with serve(fake=held) as (client, _):
        leader = asyncio.create_task(score(client))
        await asyncio.to_thread(held.started.wait, 30)
        waiter = asyncio.create_task(score(client))
        await until(lambda: joins() == before + 1)
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)
        late = asyncio.create_task(score(client))
        await until(lambda: joins() == before + 2)
        held.gate.set()
        assert [(await each).json()["scores"]["fake"]["value"] for each in (waiter, late)] == [0.02] * 2
    assert len(held.batches) == 1


async def test_a_turn_that_is_wanted_keeps_its_batch_mates_leader_from_ending_it(serve):
    scorer = FakeScorer()
    scorer.tokenizer_gate.clear()
    before = joins()
    async with serve(fake=scorer) as (client, _):
        items = [{"response": text} for text in ("a b c", "a b")]
        leader = asyncio.create_task(client.post("/v1/score_batch", json={"items": items}))
        await until(lambda: scorer.encoded)
        waiter = asyncio.create_task(score(client, "a b"))
        await until(lambda: joins() == before + 1)
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)
        scorer.tokenizer_gate.set()
        assert (await waiter).json()["scores"]["fake"]["value"] == 0.02
    assert scorer.batches == [[2]]


@pytest.mark.parametrize("deadlines_ms", [(1000, 60_000), (60_000, 1000)], ids=["who began", "who waits"])
async def test_the_deadline_of_one_ends_no_other(serve, held, deadlines_ms):
    before = joins()
    async with serve(fake=held) as (client, _):
        began = asyncio.create_task(score(client, deadline_ms=deadlines_ms[0]))
        await asyncio.to_thread(held.started.wait, 30)
        waits = asyncio.create_task(score(client, deadline_ms=deadlines_ms[1]))
        await until(lambda: joins() == before + 1)
        hasty, patient = sorted((began, waits), key=lambda asked: deadlines_ms[asked is waits])
        assert (await hasty).json()["error"]["code"] == "deadline_exceeded"
        held.gate.set()
        assert (await patient).json()["scores"]["fake"]["value"] == 0.02
    assert len(held.batches) == 1


async def test_when_all_have_left_nothing_is_computed(serve, held):
    before = joins()
    async with serve(fake=held) as (client, _):
        busy = asyncio.create_task(score(client, "keeps the runtime busy"))
        await asyncio.to_thread(held.started.wait, 30)
        asked = [asyncio.create_task(score(client)) for _ in range(3)]
        await until(lambda: joins() == before + 2)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        held.gate.set()
        await busy
        assert held.batches == [[4]]
        assert not (await score(client)).json()["scores"]["fake"]["cached"]


async def test_what_is_known_or_in_flight_is_answered_while_there_is_no_room(serve, held):
    held.gate.set()
    before = joins()
    async with serve(Settings(admission=AdmissionSettings(max_items=1)), fake=held) as (client, _):
        await score(client, "known")
        held.started.clear()
        held.gate.clear()
        busy = asyncio.create_task(score(client, "in flight"))
        await asyncio.to_thread(held.started.wait, 30)
        assert (await score(client, "neither")).json()["error"]["code"] == "overloaded"
        assert (await score(client, "known")).json()["scores"]["fake"]["cached"]
        joined = asyncio.create_task(score(client, "in flight"))
        await until(lambda: joins() == before + 1)
        held.gate.set()
        assert [(await each).status_code for each in (busy, joined)] == [ANSWERED] * 2
        assert (await score(client, "neither")).status_code == ANSWERED


async def test_bypass_computes_for_itself_alone_and_refresh_for_those_who_follow(serve):
    scorer = FakeScorer()
    async with serve(fake=scorer) as (client, _):
        cached = [
            (await score(client, cache=mode)).json()["scores"]["fake"]["cached"]
            for mode in ("bypass", "use", "use", "bypass", "refresh", "use")
        ]
    assert cached == [False, False, True, False, False, True]
    assert len(scorer.encoded) == 4


async def test_fed_computes_only_the_qualities_that_are_not_cached(serve, tmp_path):
    scorer, backend = make_fed_scorer(tmp_path / "fed")
    asked = {"context": [{"speaker": "user", "text": "hi"}], "response": "hello"}
    every, kind, clear = ({"fed": {"qualities": names}} for names in (["clear", "kind"], ["kind"], ["clear"]))
    async with serve(Settings(), fed=scorer) as (client, _):

        async def fed(options, cache="use"):
            backend.tokens_fed = 0
            return (await score(client, **asked, options=options, cache=cache)).json()["scores"]["fed"]

        fresh = {name: await fed(each, "bypass") for name, each in (("every", every), ("clear", clear))}
        tokens_of_clear = backend.tokens_fed
        await fed(kind)
        assert await fed(every) == fresh["every"]
        assert 0 < backend.tokens_fed <= tokens_of_clear
        assert await fed(clear) == {**fresh["clear"], "cached": True}
        assert await fed(every) == {**fresh["every"], "cached": True}
        assert backend.tokens_fed == 0
