"""Shadows in a service: who is shadowed, and that no caller waits for one."""

import asyncio

from conftest import ServeFakes
from support.conditions import until
from support.fakes import FakeScorer, candidate_version
from support.versions import Longer, Looks, Since, said
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import AdmissionSettings, Settings


async def test_a_shadow_that_is_computing_holds_no_caller(serve: ServeFakes, held: Longer):
    since = Since()
    async with serve(beside=CandidateVersions(shadows=[candidate_version(held)]), fake=FakeScorer()) as (client, _):
        await client.post("/v1/score", json={"response": "one two"})
        await until(held.started.is_set)  # its batch is in the runtime, and stays there
        for number in range(20):
            reply = await client.post("/v1/score", json={"response": f"word {number}"})
            assert reply.json()["scores"]["fake"]["value"] == 0.02
        assert since.outcomes() == {}
        held.gate.set()
        await until(lambda: since.outcomes() == {"compared": 21})


async def test_under_overload_nothing_is_shadowed(serve: ServeFakes):
    """While a caller's batch is in the runtime and others wait, no shadow computes; the overload over, they do."""
    served, version, since = FakeScorer(), Longer(), Since()
    settings = Settings(admission=AdmissionSettings(max_items=4))
    async with serve(settings, CandidateVersions(shadows=[candidate_version(version)]), fake=served) as (
        client,
        runtime,
    ):
        served.gate.clear()
        asking = [
            asyncio.create_task(client.post("/v1/score", json={"response": f"word {number}"})) for number in range(12)
        ]
        await until(lambda: sum(each.done() for each in asking) == 8)  # refused: four have all the room
        shadows, looks = runtime.pipeline()._shadows, Looks()
        shadows._is_idle = looks.of(shadows._is_idle)
        shadows.offer(*said(3))
        await until(lambda: looks.count > 5)
        assert (version.encoded, since.outcomes()) == ([], {})
        served.gate.set()
        codes = sorted([(await each).status_code for each in asking])
        assert codes == [200] * 4 + [429] * 8
        await until(lambda: since.outcomes() == {"compared": 5})


async def test_candidates_and_other_versions_answers_are_not_shadowed(serve: ServeFakes):
    since, version = Since(), Longer()
    beside = CandidateVersions(shadows=[candidate_version(version)])
    async with serve(beside=beside, fake=FakeScorer()) as (client, _):
        await client.post("/v1/rank", json={"candidates": ["a", "b c"]})
        turns = [{"speaker": "user", "text": "q"}, {"speaker": "system", "text": "a b c"}]
        await client.post("/v1/score_dialogue", json={"turns": turns})
        await client.post("/v1/score_batch", json={"items": [{"response": "d"}, {"response": ""}]})
        await until(lambda: since.outcomes() == {"compared": 2})
    assert version.encoded == [1, 1]


async def test_a_shadow_that_hangs_is_no_reason_to_be_unready(serve: ServeFakes):
    async with serve(beside=CandidateVersions(shadows=[candidate_version(Longer())]), fake=FakeScorer()) as (
        client,
        runtime,
    ):
        watch = runtime.pipeline()._shadows._stage._watch
        for report in (watch.on_death, watch.on_unrecoverable):
            report("shadow")
        assert (await client.get("/readyz")).status_code == 200
