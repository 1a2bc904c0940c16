"""What callers see when there is more work than the service can do, or when a part of it dies."""

import asyncio
import itertools
import os
from collections import Counter

import httpx
from conftest import ServeFakes
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake, loader_of, sample
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import AdmissionSettings, RuntimeSettings, Settings

NUMBERS = itertools.count()  # no two requests are equal: equal ones would be computed once


def asks(client: httpx.AsyncClient, count: int, **request: object) -> list["asyncio.Task[httpx.Response]"]:
    return [
        asyncio.create_task(
            client.post("/v1/score", json={"response": f"a {next(NUMBERS)}", "deadline_ms": 60_000, **request})
        )
        for _ in range(count)
    ]


async def test_text_that_is_only_tokenized_takes_room_too(serve: ServeFakes):
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


async def test_a_deadline_shorter_than_the_queue_is_refused_before_any_work(serve: ServeFakes):
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


async def test_far_too_much_work_is_answered_or_refused_and_counted_once(serve: ServeFakes):
    scorer = FakeScorer()
    settings = Settings(admission=AdmissionSettings(max_items=16))
    before = {code: sample("requests_total", transport="http", call="score", code=code) for code in CODES}
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
    counted = {
        status: sample("requests_total", transport="http", call="score", code=code) - before[code]
        for code, status in CODES.items()
    }
    assert counted == {200: 13, 429: 184, 504: 4}
    assert sample("items_in_flight", scorer="fake") == 0
    assert sample("tokens_in_flight", scorer="fake") == 0


CODES = {"ok": 200, "overloaded": 429, "deadline_exceeded": 504}


async def test_a_dead_runtime_fails_its_callers_and_readiness_and_comes_back(serve: ServeFakes):
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
    transport = httpx.ASGITransport(create_app(runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://turnscore") as client:
        [hung] = await asyncio.gather(*asks(client, 1))
        await until(lambda: codes)
    scorer.gate.set()
    await runtime.stop()
    assert hung.status_code == 500
    assert codes == [os.EX_SOFTWARE]
