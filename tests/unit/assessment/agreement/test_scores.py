"""Judged dialogues and their scores: what is read and refused, and that a bundle and a service give the same."""

from pathlib import Path

import httpx
import pytest
from support.exporter_data import OracleScorer, build_judged, write_judged
from support.fakes import FakeScorer, engine_of, loaded_fake
from turnscore_assessment.agreement import scoring
from turnscore_assessment.errors import AgreementError, BadFileError
from turnscore_client import AsyncTurnScoreClient
from turnscore_service.api.http.app import create_app

USER = {"speaker": "user", "text": "hi"}
SYSTEM = {"speaker": "system", "text": "hello"}
VOTED = [{**SYSTEM, "breakdown_votes": dict(zip("OTX", votes, strict=True))} for votes in ((20, 5, 5), (0, 1, 3))]
SILENT = {"speaker": "system", "text": "", "breakdown_votes": {"O": 0, "T": 0, "X": 2}}
DBDC3_ROW = {"id": "iris_1", "system": "IRIS", "turns": [USER, VOTED[0], USER, VOTED[1], SYSTEM, SILENT]}

WRONG_ROWS = [
    ({"id": "a"}, "turns: field required"),
    ({"id": "a", "turns": [{"speaker": "bot", "text": "hi"}]}, "turns.0.speaker: "),
    ({"id": "a", "turns": [USER, {"speaker": "system"}]}, "turns.1.text: field required"),
    ({"id": "a", "turns": [USER, {**SYSTEM, "text": " "}]}, "turns: there is no system turn to score"),
    ({"id": "a", "turns": [{**SYSTEM, "quality": float("nan")}]}, "is not JSON: NaN is not valid JSON"),
    ({"id": "a", "turns": [{**USER, "quality": 1}, SYSTEM]}, "turns.0.quality: only system turns are judged"),
    ({"id": "a", "turns": [{**SYSTEM, "breakdown_votes": 7}]}, "turns.0.breakdown_votes"),
    ({"id": "a", "turns": [{**SYSTEM, "breakdown_votes": {"O": 1, "T": 1, "X": -1}}]}, "turns.0.breakdown_votes"),
    ({"id": "a", "turns": [{**SYSTEM, "breakdown_votes": {"O": 0, "T": 0, "X": 0}}]}, "turns.0.breakdown_votes"),
]


@pytest.mark.parametrize(("row", "sentence"), WRONG_ROWS)
def test_a_wrong_row_is_refused_by_file_line_and_field(tmp_path, row, sentence):
    path = write_judged(tmp_path / "file.jsonl", [build_judged(1), row])
    with pytest.raises(BadFileError) as refused:
        scoring.read_judged_dialogues(path)
    assert str(refused.value).startswith(f"{path}, line 2: {sentence}")


def test_an_id_used_twice_and_an_empty_file_are_refused(tmp_path):
    with pytest.raises(BadFileError, match="line 2: id: 'd1' was already used"):
        scoring.read_judged_dialogues(write_judged(tmp_path / "twice.jsonl", [build_judged(1), build_judged(1)]))
    with pytest.raises(BadFileError, match="no dialogue"):
        scoring.read_judged_dialogues(write_judged(tmp_path / "empty.jsonl", []))


def test_votes_become_qualities(tmp_path):
    [dialogue] = scoring.read_judged_dialogues(write_judged(tmp_path / "dbdc3.jsonl", [DBDC3_ROW]))
    assert dialogue.turn_qualities == {1: 22.5 / 30, 3: 0.5 / 4, 5: 0.0}
    assert (dialogue.id, dialogue.system, len(dialogue.turns)) == ("iris_1", "IRIS", 6)


def test_the_documented_example_is_read(tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "agreement.md").read_text(encoding="utf-8")
    path = tmp_path / "example.jsonl"
    path.write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    first, second, third = scoring.read_judged_dialogues(path)
    assert (first.turn_qualities, second.turn_qualities, third.quality) == ({1: 0.9}, {2: 0.2}, 3.0)


DIALOGUES = [scoring.JudgedDialogue.model_validate(build_judged(number, pairs=1 + number % 5)) for number in range(40)]
MONOLOGUE = scoring.JudgedDialogue.model_validate({"id": "m", "turns": [{"speaker": "system", "text": "hello 5"}]})
POISONED = scoring.JudgedDialogue.model_validate({"id": "p", "turns": [{"speaker": "system", "text": "not a number"}]})


def ignore(_):
    """Nobody watches."""


async def score_here(scorer, dialogues):
    async with scoring.command_line.client_over(engine_of({scorer.KIND: loaded_fake(scorer, scorer.KIND)})) as client:
        return await scoring.score_with_client(client, [scorer.KIND], dialogues, 16, ignore)


def client_of(runtime):
    return AsyncTurnScoreClient("http://turnscore.test", transport=httpx.ASGITransport(create_app(runtime)))


async def test_a_service_and_a_bundle_give_the_same_scores(serve):
    dialogues = [*DIALOGUES, MONOLOGUE]
    done = []
    async with serve(oracle=OracleScorer(), fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        served = await scoring.score_with_client(client, ["fake", "oracle"], dialogues, 3, done.append)
    assert sum(done) == len(dialogues)
    for found, scorer in zip(served, (FakeScorer(), OracleScorer()), strict=True):
        [expected] = await score_here(scorer, dialogues)
        assert (found.scorer, found.model, found.parts) == (expected.scorer, expected.model, expected.parts)
        for ours, theirs in zip(found.dialogues, expected.dialogues, strict=True):
            assert ours.turns == theirs.turns
            assert ours.dialogue == pytest.approx(theirs.dialogue)


async def test_a_score_that_is_not_a_number_and_a_bundle_that_is_not_there_are_refused_by_name(serve):
    with pytest.raises(AgreementError, match="dialogue 'p'"):
        await score_here(FakeScorer(), [DIALOGUES[0], POISONED])
    async with serve(fake=FakeScorer()) as (_, runtime), client_of(runtime) as client:
        with pytest.raises(AgreementError, match="dialogue 'p'"):
            await scoring.score_with_client(client, ["fake"], [DIALOGUES[0], POISONED], 2, ignore)
    with pytest.raises(AgreementError, match="no bundle folder nowhere/x"):
        scoring.open_engine(["nowhere/x"])
