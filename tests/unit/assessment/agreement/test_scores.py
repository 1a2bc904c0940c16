"""Scores of judged dialogues: a bundle and a service give the same, and say what went wrong."""

import httpx
import pytest
from support.exporter_data import OracleScorer, build_judged
from support.fakes import FakeScorer, loaded_fake
from turnscore_assessment.agreement.scoring import JudgedDialogue, load_bundles, score_with_bundle, score_with_service
from turnscore_assessment.errors import AgreementError
from turnscore_client import AsyncTurnScoreClient
from turnscore_service.api.http.app import create_app

DIALOGUES = [JudgedDialogue.model_validate(build_judged(number, pairs=1 + number % 5)) for number in range(40)]
MONOLOGUE = JudgedDialogue.model_validate({"id": "m", "turns": [{"speaker": "system", "text": "hello 5"}]})
POISONED = JudgedDialogue.model_validate({"id": "p", "turns": [{"speaker": "system", "text": "not a number"}]})


def ignore(_: int) -> None:
    """Nobody watches."""


def client_of(runtime) -> AsyncTurnScoreClient:
    return AsyncTurnScoreClient("http://turnscore.test", transport=httpx.ASGITransport(create_app(runtime)))


async def test_a_service_and_a_bundle_give_the_same_scores(serve) -> None:
    dialogues = [*DIALOGUES, MONOLOGUE]
    done: list[int] = []
    async with serve(oracle=OracleScorer(), fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        served = await score_with_service(client, ["fake", "oracle"], dialogues, 3, done.append)
    assert sum(done) == len(dialogues)
    for found, scorer in zip(served, (FakeScorer(), OracleScorer()), strict=True):
        expected = score_with_bundle(loaded_fake(scorer, scorer.KIND), dialogues, ignore)
        assert (found.scorer, found.model, found.parts) == (expected.scorer, expected.model, expected.parts)
        for ours, theirs in zip(found.dialogues, expected.dialogues, strict=True):
            assert ours.turns == theirs.turns
            assert ours.dialogue == pytest.approx(theirs.dialogue)


def test_a_dialogues_score_leaves_out_turns_that_do_not_count() -> None:
    scored = score_with_bundle(loaded_fake(OracleScorer(), "oracle"), [DIALOGUES[3], MONOLOGUE], ignore)
    dialogue, monologue = scored.dialogues
    qualities = list(DIALOGUES[3].turn_qualities.values())
    assert len(dialogue.turns) == len(qualities) + 1
    assert dialogue.dialogue["value"] == pytest.approx(sum(qualities) / len(qualities))
    assert dialogue.dialogue["worse"] == pytest.approx(-sum(qualities) / len(qualities))
    assert monologue.dialogue == {}


async def test_a_score_that_is_not_a_number_is_refused_by_its_dialogue(serve) -> None:
    with pytest.raises(AgreementError, match="dialogue 'p', turn 0"):
        score_with_bundle(loaded_fake(FakeScorer()), [DIALOGUES[0], POISONED], ignore)
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        with pytest.raises(AgreementError, match="dialogue 'p'"):
            await score_with_service(client, ["fake"], [DIALOGUES[0], POISONED], 2, ignore)


def test_a_bundle_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(AgreementError, match="no bundle folder nowhere/x"):
        load_bundles(["nowhere/x"])
