"""Scores of judged dialogues: a bundle and a service give the same, and say what went wrong."""

from unittest.mock import AsyncMock

import httpx
import pytest
from support.exporter_data import OracleScorer, build_judged
from support.fakes import FakeScorer, loaded_fake
from turnscore_assessment.agreement.judged_dialogues import JudgedDialogue
from turnscore_assessment.agreement.scoring import load_bundles, make_turn, score_with_bundle, score_with_service
from turnscore_assessment.errors import AgreementError
from turnscore_client import AsyncTurnScoreClient
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import score_turns
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


class ShortSightedScorer(FakeScorer):
    """Reads two words of a response."""

    def trim(self, turn: TurnToScore) -> TurnToScore:
        return turn.trimmed([], " ".join(turn.response.split()[:2]), is_cut=True)


def test_a_bundle_reads_no_more_of_a_turn_than_a_service_does() -> None:
    loaded = loaded_fake(ShortSightedScorer())
    spoken = JudgedDialogue.model_validate({"id": "d", "turns": [{"speaker": "system", "text": "one two three"}]})
    assert score_with_bundle(loaded, [spoken], ignore).dialogues[0].turns == {0: {"value": 0.02}}
    assert [raw.value for raw in score_turns(loaded, [make_turn([], "one two three")])] == [0.02]


async def test_a_score_that_is_not_a_number_is_refused_by_its_dialogue(serve) -> None:
    with pytest.raises(AgreementError, match="dialogue 'p', turn 0"):
        score_with_bundle(loaded_fake(FakeScorer()), [DIALOGUES[0], POISONED], ignore)
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        with pytest.raises(AgreementError, match="dialogue 'p'"):
            await score_with_service(client, ["fake"], [DIALOGUES[0], POISONED], 2, ignore)


async def test_a_service_that_answers_by_another_version_is_refused(serve) -> None:
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        listed = await client.models()
        other = [each.model_copy(update={"model": "fake:9.0.0"}) for each in listed.models]
        client.models = AsyncMock(return_value=listed.model_copy(update={"models": other}))
        with pytest.raises(AgreementError, match=r"answered by fake:.*, not by fake:9.0.0"):
            await score_with_service(client, ["fake"], [DIALOGUES[0]], 2, ignore)


def test_a_bundle_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(AgreementError, match="no bundle folder nowhere/x"):
        load_bundles(["nowhere/x"])
