"""Under a lasting overload requests are refused undecoded, and nobody who could be answered is."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from support.conditions import until
from support.fakes import FakeScorer, sample
from support.transports import served_app
from turnscore_service.scheduling.admission import REFUSALS_IN_A_ROW, SHED_PER_WITNESS
from turnscore_service.settings.service import AdmissionSettings, RuntimeSettings, Settings
from turnscore_wire.messages import MAX_DEADLINE_MS

# Of a turn that is held neither the caller nor the stage gives up, however slow the machine is.
TIGHT = Settings(
    admission=AdmissionSettings(max_items=1), runtime=RuntimeSettings(stall_seconds=MAX_DEADLINE_MS / 1000)
)
NUMBERS = itertools.count()


def count_shed() -> float:
    return sample("requests_shed_total", transport="http", call="score")


def count_refused() -> float:
    return sample("requests_total", transport="http", call="score", code="overloaded")


@asynccontextmanager
async def serve(**scorers: FakeScorer) -> AsyncIterator[httpx.AsyncClient]:
    """A service with room for one turn a scorer."""
    with served_app(TIGHT, **scorers) as url:
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:
            try:
                yield client
            finally:
                for scorer in scorers.values():  # a test that failed must not leave a thread waiting
                    scorer.gate.set()


async def ask(client: httpx.AsyncClient, **request: object) -> httpx.Response:
    fresh = {"response": f"no two are equal {next(NUMBERS)}", "deadline_ms": MAX_DEADLINE_MS, "scorers": ["fake"]}
    return await client.post("/v1/score", json={**fresh, **request}, headers={"x-request-id": "told"})


async def fill(client: httpx.AsyncClient, scorer: FakeScorer) -> "asyncio.Task[httpx.Response]":
    """One turn held in the runtime, which is all that there is room for."""
    scorer.gate.clear()
    held = asyncio.create_task(ask(client))
    await until(lambda: len(scorer.batches) > 0)
    return held


async def overload(client: httpx.AsyncClient, scorer: FakeScorer) -> "asyncio.Task[httpx.Response]":
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
