"""What callers see when there is more work than can be done: most are refused undecoded, none who could be answered."""

import asyncio
import itertools
import os
from collections import Counter
from contextlib import asynccontextmanager

import httpx
from support.conditions import until
from support.fakes import FakeScorer, Since, loaded_fake, loader_of, sample
from support.transports import http_client, served_app, settings_with
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.admission import REFUSALS_IN_A_ROW, SHED_PER_WITNESS
from turnscore_service.settings.service import AdmissionSettings, RuntimeSettings, Settings
from turnscore_wire.messages import MAX_DEADLINE_MS

NUMBERS = itertools.count()  # no two requests are equal: equal ones would be computed once


def asks(client, count, **request):
    return [
        asyncio.create_task(
            client.post("/v1/score", json={"response": f"a {next(NUMBERS)}", "deadline_ms": 60_000, **request})
        )
        for _ in range(count)
    ]


async def test_text_that_is_only_tokenized_takes_room_too(serve):
    """The fake scorer reads everything and computes one token a word of the response."""
    scorer = FakeScorer()
    scorer.tokenizer_gate.clear()
    settings = Settings(admission=AdmissionSettings(max_tokens=4096))
    context = [{"speaker": "user", "text": "x" * 7000}] * 100
    async with serve(settings, fake=scorer) as (client, _):
        flood = asks(client, 3, context=context)
        await until(lambda: sum(task.done() for task in flood) == 2)
        scorer.tokenizer_gate.set()
        codes = Counter(answer.status_code for answer in await asyncio.gather(*flood))
    assert codes == {200: 1, 429: 2}


async def test_a_deadline_shorter_than_the_queue_is_refused_before_any_work(serve):
    scorer = FakeScorer()
    async with serve(fake=scorer) as (client, runtime):
        await client.post("/v1/score", json={"response": "a b"})  # teaches the pace
        scorer.gate.clear()
        queued = asks(client, 20)
        await until(lambda: len(scorer.batches) == 2 and sum(scorer.encoded) == 21)  # one is held, the others wait
        batcher = runtime.pipeline()._runtimes["fake"].batcher
        batcher._pace = 100.0
        encoded = list(scorer.encoded)
        [answer] = await asyncio.gather(*asks(client, 1, deadline_ms=30_000))
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert scorer.encoded == encoded
        scorer.gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*queued)} == {200}


async def test_far_too_much_work_is_answered_or_refused_and_counted_once(serve):
    scorer = FakeScorer()
    settings = Settings(admission=AdmissionSettings(max_items=16))
    grown = Since("requests_", transport="http", call="score")
    async with serve(settings, fake=scorer) as (client, _):
        scorer.gate.clear()
        impatient = asks(client, 4, deadline_ms=20)
        patient = asks(client, 196)
        await asyncio.gather(*impatient)
        scorer.gate.set()
        codes = Counter(answer.status_code for answer in await asyncio.gather(*impatient, *patient))
        later = await client.post("/v1/score", json={"response": "a b"})
    assert codes == {504: 4, 200: 12, 429: 184}
    assert later.status_code == 200
    assert {status: grown("total", code=code) for code, status in CODES.items()} == {200: 13, 429: 184, 504: 4}
    assert sample("items_in_flight", scorer="fake") == 0
    assert sample("tokens_in_flight", scorer="fake") == 0


CODES = {"ok": 200, "overloaded": 429, "deadline_exceeded": 504}


async def test_a_dead_runtime_fails_its_callers_and_readiness_and_comes_back(serve):
    scorer = FakeScorer()
    settings = Settings(runtime=RuntimeSettings(stall_seconds=0.1))
    async with serve(settings, fake=scorer) as (client, runtime):
        scorer.gate.clear()
        [hung] = await asyncio.gather(*asks(client, 1))
        readiness = await client.get("/readyz")
        scorer.gate.set()
        await until(lambda: runtime.health.is_ready)
        [later] = await asyncio.gather(*asks(client, 1))
    assert (hung.status_code, readiness.status_code, later.status_code) == (500, 503, 200)
    assert "fake" in readiness.json()["error"]["message"]


async def test_a_process_whose_runtime_cannot_be_revived_ends_for_its_supervisor():
    scorer, codes = FakeScorer(), []
    scorer.gate.clear()
    settings = Settings(runtime=RuntimeSettings(stall_seconds=0.02))
    runtime = Runtime(settings, loader=loader_of({"fake": loaded_fake(scorer)}), exit_process=codes.append)
    runtime.start()
    await runtime.wait_until_loaded()
    async with http_client(runtime) as client:
        [hung] = await asyncio.gather(*asks(client, 1))
        await until(lambda: codes)
    scorer.gate.set()
    await runtime.stop()
    assert hung.status_code == 500
    assert codes == [os.EX_SOFTWARE]


# Of a turn that is held neither the caller nor the stage gives up, however slow the machine is.
TIGHT = settings_with(admission={"max_items": 1}, runtime={"stall_seconds": MAX_DEADLINE_MS / 1000})


def count_shed():
    return sample("requests_shed_total", transport="http", call="score")


def count_refused():
    return sample("requests_total", transport="http", call="score", code="overloaded")


@asynccontextmanager
async def serve(**scorers):
    """A service with room for one turn a scorer."""
    with served_app(TIGHT, **scorers) as (url, _):
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:
            try:
                yield client
            finally:
                for scorer in scorers.values():  # a test that failed must not leave a thread waiting
                    scorer.gate.set()


async def ask(client, **request):
    fresh = {"response": f"no two are equal {next(NUMBERS)}", "deadline_ms": MAX_DEADLINE_MS, "scorers": ["fake"]}
    return await client.post("/v1/score", json={**fresh, **request}, headers={"x-request-id": "told"})


async def fill(client, scorer):
    """One turn held in the runtime, which is all that there is room for."""
    scorer.gate.clear()
    held = asyncio.create_task(ask(client))
    await until(lambda: len(scorer.batches) > 0)
    return held


async def overload(client, scorer):
    """The same, and as many refused as it takes until others are refused undecoded."""
    held = await fill(client, scorer)
    for _ in range(REFUSALS_IN_A_ROW):
        assert (await ask(client)).status_code == 429
    return held


async def test_who_is_refused_undecoded_is_told_as_whoever_was_decoded():
    scorer = FakeScorer()
    async with serve(fake=scorer) as client:
        held = await fill(client, scorer)
        shed_before, refused_before = count_shed(), count_refused()
        answers = [await ask(client) for _ in range(REFUSALS_IN_A_ROW + SHED_PER_WITNESS)]
        nonsense = await client.post(
            "/v1/score", content=b"not JSON", headers={"content-type": "application/json"}
        )  # the next is decoded
        scorer.gate.set()
        assert (await held).status_code == 200
    assert count_shed() - shed_before == SHED_PER_WITNESS
    assert count_refused() - refused_before == REFUSALS_IN_A_ROW + SHED_PER_WITNESS
    for answer in answers:
        assert answer.status_code == 429
        assert answer.headers["x-request-id"] == answer.json()["request_id"] == "told"
        assert answer.json()["error"]["code"] == "overloaded"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["retry_after_ms"] > 0
    assert "before it was decoded" in answers[-1].json()["error"]["message"]
    assert nonsense.status_code == 400


async def test_known_turns_are_answered_while_the_others_are_shed():
    """One in thirty-one is known: too few for the others to be decoded because of them."""
    scorer = FakeScorer()
    async with serve(fake=scorer) as client:
        assert (await ask(client, response="known")).status_code == 200
        scorer.batches.clear()
        held = await overload(client, scorer)
        shed_before, statuses = count_shed(), []
        for _ in range(10):
            statuses += [(await ask(client)).status_code for _ in range(30)]
            statuses.append((await ask(client, response="known")).status_code)
        scorer.gate.set()
        await held
    assert statuses == ([429] * 30 + [200]) * 10
    assert count_shed() - shed_before >= 10 * 30 - 10


async def test_what_was_answered_and_is_known_no_longer_is_decoded_once():
    scorer = FakeScorer()
    async with serve(fake=scorer) as client:
        assert (await ask(client, response="not kept", cache="bypass")).status_code == 200
        scorer.batches.clear()
        held = await overload(client, scorer)
        shed_before = count_shed()
        answers = [await ask(client, response="not kept", cache="bypass") for _ in range(5)]
        scorer.gate.set()
        await held
    assert [each.status_code for each in answers] == [429] * 5
    assert count_shed() - shed_before == 4


async def test_another_scorer_is_asked_all_the_same():
    scorer, other = FakeScorer(), FakeScorer()
    async with serve(fake=scorer, other=other) as client:
        held = await fill(client, scorer)
        shed_before = count_shed()
        full = [(await ask(client)).status_code for _ in range(2 * REFUSALS_IN_A_ROW)]
        calm = [(await ask(client, scorers=["other"])).status_code for _ in range(2 * REFUSALS_IN_A_ROW)]
        both = [(await ask(client, scorers=None)).status_code for _ in range(2)]
        scorer.gate.set()
        await held
    assert full == [429] * 2 * REFUSALS_IN_A_ROW
    assert calm == [200] * 2 * REFUSALS_IN_A_ROW
    assert both == [429] * 2
    assert count_shed() > shed_before


async def test_health_and_metrics_are_answered_while_requests_are_shed():
    scorer = FakeScorer()
    async with serve(fake=scorer) as client:
        held = await overload(client, scorer)
        statuses = [(await client.get(path)).status_code for path in ("/livez", "/readyz", "/metrics", "/v1/models")]
        assert "before it was decoded" in (await ask(client)).json()["error"]["message"]
        scorer.gate.set()
        await held
    assert statuses == [200] * 4


async def test_a_large_batch_is_refused_undecoded_though_its_body_comes_in_many_pieces():
    scorer = FakeScorer()
    async with serve(fake=scorer) as client:
        held = await overload(client, scorer)
        items = [{"response": f"{number} " + "word " * 800, "scorers": ["fake"]} for number in range(200)]
        answer = await client.post("/v1/score_batch", json={"items": items})
        scorer.gate.set()
        await held
    assert answer.status_code == 429
    assert "before it was decoded" in answer.json()["error"]["message"]
