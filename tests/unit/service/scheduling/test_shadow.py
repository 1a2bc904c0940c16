"""Candidate versions: which answers a conversation, and shadows, which are compared and never answered."""

import asyncio
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.conditions import until
from support.fakes import NOT_A_NUMBER, FakeScorer, candidate_version, loaded_fake
from support.versions import Longer, Looks, ShadowsSince, said, shadows_of
from turnscore_core.model_set import choose_defaults
from turnscore_service.auth.access import CALLER, Caller, Preferences
from turnscore_service.scheduling import shadow
from turnscore_service.scheduling.shadow import Idleness, rank_correlation
from turnscore_service.scheduling.versions import CandidateVersions, TrafficSplit, conversation_key, is_drawn
from turnscore_service.settings.service import AdmissionSettings, Settings
from turnscore_wire import Turn

IDS = [f"conversation-{number}" for number in range(10_000)]


def drawn(version):
    return {each for each in IDS if is_drawn(f"named:{each}", version)}


def roster_of(*names):
    return choose_defaults({name: loaded_fake(FakeScorer(), name) for name in names or ("fake",)})


def user(text):
    return Turn(speaker="user", text=text)


def system(text):
    return Turn(speaker="system", text=text)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_a_version_answers_its_share_of_the_conversations(share):
    count = len(drawn(candidate_version(FakeScorer(), share)))
    # Ids are fixed, so this is no game of chance: the count is one draw of the binomial that the share promises.
    assert abs(count - share * len(IDS)) <= 3.3 * math.sqrt(len(IDS) * share * (1 - share))


def test_a_share_that_is_raised_keeps_the_conversations_that_it_had():
    few, many = drawn(candidate_version(FakeScorer(), 0.1)), drawn(candidate_version(FakeScorer(), 0.3))
    assert few < many


def test_the_same_conversation_is_drawn_in_every_process():
    version = candidate_version(FakeScorer(), 0.1)
    assert sorted(drawn(version))[:3] == ["conversation-1002", "conversation-1014", "conversation-1016"]


def test_a_conversation_stays_with_its_version_turn_by_turn():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 0.5)])
    for number in range(50):
        turns = [system("Welcome!"), user(f"my order {number} is late"), system("Oh."), user("so?"), system("Sorry.")]
        found = {id(split.model_set_for(None, turns[:length])) for length in range(2, len(turns) + 1)}
        assert len(found) == 1
        later = [user("x"), *turns]
        assert len({id(split.model_set_for(f"c{number}", each)) for each in (turns, later, [])}) == 1


def test_before_the_user_said_anything_the_served_version_answers():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 1.0)])
    assert conversation_key(None, [system("Welcome!"), user("  ")]) is None
    assert split.model_set_for(None, [system("Welcome!")]).versions == {}
    assert split.model_set_for(None, [user("hi")]).versions == {"fake": "fake:1.1.0"}


def test_a_version_without_a_share_answers_the_keys_that_name_it_and_nobody_else():
    split = TrafficSplit(roster_of(), [candidate_version(FakeScorer(), 0.0)])
    assert {id(split.model_set_for(each)) for each in IDS[:500]} == {id(split.model_set_for())}
    token = CALLER.set(Caller("team", preferences=Preferences(models=("fake:1.1.0",))))
    try:
        found = {split.model_set_for(each).scorers["fake"].model for each in (*IDS[:500], None)}
        assert found == {"fake:1.1.0"}
    finally:
        CALLER.reset(token)


@pytest.mark.parametrize("places", [0, 1, 6])
def test_it_is_spearmans_rho_with_ties(places):
    draw = random.Random(places)
    pairs = [
        (round(x, places), round(x + draw.gauss(0, 20), places)) for x in (draw.uniform(0, 100) for _ in range(300))
    ]
    found = rank_correlation(np.array(pairs))
    assert found == pytest.approx(float(spearmanr(*zip(*pairs, strict=True)).statistic), abs=1e-12)


@dataclass
class RunningBatches:
    waiting: int = 0
    running: int = 0


LOADS = [
    (1, [RunningBatches()], False),
    (2, [RunningBatches(running=1)], False),
    (2, [RunningBatches()], False),  # its tokens are being made
    (3, [RunningBatches(), RunningBatches()], True),
    (3, [RunningBatches(running=1), RunningBatches()], False),
    (16, [RunningBatches(running=10), RunningBatches(running=3)], True),
    (16, [RunningBatches(running=10), RunningBatches(running=4)], False),
    (16, [RunningBatches(running=1), RunningBatches(waiting=1)], False),
]


@pytest.mark.parametrize(("cpus", "batchers", "idle"), LOADS)
def test_shadows_need_cpus_to_spare_and_no_caller_waiting(cpus, batchers, idle):
    assert Idleness(batchers, lambda: True, cpus).is_idle() is idle


async def test_the_difference_is_measured_turn_by_turn():
    since = ShadowsSince()
    async with shadows_of(Longer()) as shadows:
        for words in (1, 5, 9):
            shadows.offer(*said(words))
        await until(lambda: since.outcomes() == {"compared": 3})
    assert (since("percentiles_total", by="served"), since("percentiles_total", by="shadow")) == (15, 21)
    assert since("percentile_shift_sum") == pytest.approx(6)
    assert [since("percentile_shift_bucket", le=f"{le}.0") for le in (1, 2, 5)] == [0, 3, 3]
    assert since("cpu_seconds_total") > 0


async def test_labels_that_flip_are_counted_by_both_sides():
    """Hand-made: threshold 0.05 in both; the shadow gives 0.02 more."""
    since = ShadowsSince()
    pairs = [(1, "low"), (2, "low"), (3, "low"), (4, "low"), (5, "fair"), (9, "fair")]  # 3 and 4 become fair
    async with shadows_of(Longer(), threshold=0.05) as shadows:
        for words, label in pairs:
            shadows.offer(*said(words, label=label))
        await until(lambda: since.outcomes() == {"compared": 6})
    counts = {
        (was, becomes): since("labels_total", served_label=was, shadow_label=becomes)
        for was in ("low", "fair", "none")
        for becomes in ("low", "fair", "none")
    }
    assert {pair: count for pair, count in counts.items() if count} == {
        ("low", "low"): 2, ("low", "fair"): 2, ("fair", "fair"): 2,
    }  # fmt: skip


async def test_no_more_than_a_few_wait_and_the_rest_is_counted():
    since = ShadowsSince()
    async with shadows_of(Longer(), is_idle=lambda: False) as shadows:
        for _ in range(shadow.MOST_WAITING + 7):
            shadows.offer(*said(1))
        assert since.outcomes() == {"full": 7}


async def test_what_waits_too_long_is_dropped(monkeypatch):
    monkeypatch.setattr(shadow, "MOST_SECONDS", 0.0)
    since = ShadowsSince()
    scorer = Longer()
    async with shadows_of(scorer, is_idle=lambda: False) as shadows:
        shadows.offer(*said(1))
        shadows.offer(*said(2))
        await until(lambda: since.outcomes() == {"late": 2})
        assert shadows._chars == 0
    assert scorer.encoded == []


@pytest.mark.parametrize("text", [NOT_A_NUMBER, "untokenizable", "poison"])
async def test_a_turn_that_fails_is_counted_and_the_next_one_compared(text):
    since = ShadowsSince()
    async with shadows_of(Longer()) as shadows:
        item, outcome = said(2)
        shadows.offer(replace(item, turn=replace(item.turn, response=text)), outcome)
        shadows.offer(*said(3))
        await until(lambda: since.outcomes() == {"failed": 1, "compared": 1})


async def test_at_the_end_what_waits_is_dropped_and_nothing_hangs():
    scorer = Longer()
    async with shadows_of(scorer, is_idle=lambda: False) as shadows:
        shadows.offer(*said(1))
        await shadows.stop()
        shadows.offer(*said(2))  # of a request that is answered while the process drains
        assert (len(shadows._queue), scorer.encoded) == (0, [])


async def test_a_shadow_that_hangs_is_given_up(held):
    since = ShadowsSince()
    async with shadows_of(held, stall_seconds=0.1) as shadows:
        shadows.offer(*said(2))
        await until(lambda: since.outcomes() == {"failed": 1})


async def test_a_shadow_that_is_computing_holds_no_caller(serve, held):
    since = ShadowsSince()
    async with serve(candidates=CandidateVersions(shadows=[candidate_version(held)]), fake=FakeScorer()) as (client, _):
        await client.post("/v1/score", json={"response": "one two"})
        await until(held.started.is_set)  # its batch is in the runtime, and stays there
        for number in range(20):
            reply = await client.post("/v1/score", json={"response": f"word {number}"})
            assert reply.json()["scores"]["fake"]["value"] == 0.02
        assert since.outcomes() == {}
        held.gate.set()
        await until(lambda: since.outcomes() == {"compared": 21})


async def test_under_overload_nothing_is_shadowed(serve):
    """While a caller's batch is in the runtime and others wait, no shadow computes; the overload over, they do."""
    served, version, since = FakeScorer(), Longer(), ShadowsSince()
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
        assert sorted([(await each).status_code for each in asking]) == [200] * 4 + [429] * 8
        await until(lambda: since.outcomes() == {"compared": 5})


async def test_candidates_and_other_versions_answers_are_not_shadowed(serve):
    since, version = ShadowsSince(), Longer()
    candidates = CandidateVersions(shadows=[candidate_version(version)])
    async with serve(candidates=candidates, fake=FakeScorer()) as (client, _):
        await client.post("/v1/rank", json={"candidates": ["a", "b c"]})
        turns = [{"speaker": "user", "text": "q"}, {"speaker": "system", "text": "a b c"}]
        await client.post("/v1/score_dialogue", json={"turns": turns})
        await client.post("/v1/score_batch", json={"items": [{"response": "d"}, {"response": ""}]})
        await until(lambda: since.outcomes() == {"compared": 2})
    assert version.encoded == [1, 1]
