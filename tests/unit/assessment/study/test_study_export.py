"""What a study leaves behind: a ratings file without names, and turnscore's scores that nobody saw."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from support.conditions import until
from support.studies import Served, served_study
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.ratings.rating_file import RatingFile, read_ratings, write_ratings
from turnscore_assessment.study import recordings
from turnscore_assessment.study.database import dialogues
from turnscore_assessment.study.recordings import BlindScorer, Score, export_ratings, read_recordings, score_by
from turnscore_assessment.study.workers import delete_texts
from turnscore_client import (
    ConnectionFailedError,
    InternalError,
    InvalidRequestError,
    TooLargeError,
    Turn,
    TurnScoreError,
)
from turnscore_client.testing import MockTurnScore

RATINGS = {"fun": 70, "repetitive": 20}


async def rate_all(served: Served, link: object) -> None:
    standing = await served.agree(link)
    while standing["dialogue"]:
        dialogue = standing["dialogue"]["id"]
        await served.talk(link, dialogue)
        served.clock.now += 90
        await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
        standing = (await served.post(link, "begin")).json()


def export(served: Served, *, with_texts: bool = True) -> RatingFile:
    plan = served.study.plan
    return served.database.run_here(
        export_ratings, served.database.study_id, plan, read_recordings(plan), with_texts=with_texts
    )


async def test_the_export_is_a_ratings_file_that_names_no_person(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        links = served.invite(2)
        for link in links:
            await rate_all(served, link)
        found = export(served)
        path = tmp_path / "ratings.jsonl"
        write_ratings(path, found)
    read = read_ratings(path)
    assert read == found
    assert read.description.names == ["fun", "repetitive"]
    assert [dialogue.position for dialogue in read.dialogues] == [0, 1, 0, 1]
    assert {(dialogue.system, dialogue.degraded) for dialogue in read.dialogues} == {
        ("secretly-good", False),
        ("secretly-bad", True),
    }
    assert len({dialogue.worker for dialogue in read.dialogues}) == 2
    assert {dialogue.seconds for dialogue in read.dialogues} == {90.0}
    assert [turn.text for turn in read.dialogues[0].turns][::2] == ["hello 0", "hello 1", "hello 2"]
    text = path.read_text()
    assert all(link.code not in text and link.secret not in text for link in links)


async def test_texts_can_be_left_out_and_deleted_and_the_ratings_stay(tmp_path: Path) -> None:
    async with served_study(tmp_path) as served:
        [link] = served.invite()
        with pytest.raises(TooFewError, match="no rated dialogue yet"):
            export(served)
        await rate_all(served, link)
        with_texts, without = export(served), export(served, with_texts=False)
        assert all(dialogue.turns for dialogue in with_texts.dialogues)
        assert served.database.run_here(delete_texts, served.database.study_id) == 12
        assert export(served) == without
        assert not any(dialogue.turns for dialogue in without.dialogues)


async def test_recorded_dialogues_are_exported_with_their_names(tmp_path: Path) -> None:
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "d1", "turns": turns}))
    systems = [{"name": "A", "dialogues": str(tmp_path / "a.jsonl")}]
    async with served_study(tmp_path, systems=systems) as served:
        [link] = served.invite()
        standing = await served.agree(link)
        assert standing["study"]["kind"] == "recorded"
        assert standing["dialogue"]["turns"] == turns
        talk = await served.post(link, "message", dialogue=standing["dialogue"]["id"], number=0, text="hi")
        assert talk.json()["error"]["code"] == "not_open"
        await served.post(link, "rating", dialogue=standing["dialogue"]["id"], ratings=RATINGS)
        [dialogue] = export(served).dialogues
    assert (dialogue.dialogue, dialogue.system, len(dialogue.turns)) == ("d1", "A", 2)


def make_scores(served: Served, score: Score) -> BlindScorer:
    return BlindScorer(served.database, read_recordings(served.study.plan), score)


def read_scores(served: Served) -> list[Any]:
    return list(served.database.run_here(lambda c: c.execute(select(dialogues.c.scores)).scalars().all()))


async def test_while_turnscore_is_down_the_study_goes_on_and_is_scored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "POLL_SECONDS", 0.01)
    is_down, tried = True, 0

    async def score(turns: list[Turn]) -> Mapping[str, float]:
        nonlocal tried
        tried += 1
        if is_down:
            raise ConnectionFailedError("no service there")
        return {"engagement": 0.5, "turns": len(turns)}

    async with served_study(tmp_path) as served:
        scoring = asyncio.create_task(make_scores(served, score).run())
        [link] = served.invite()
        await rate_all(served, link)
        assert (await served.get(link)).json()["finished"]
        await until(lambda: tried > 2)
        assert read_scores(served) == [None, None]
        is_down = False
        await until(lambda: None not in read_scores(served))
        scoring.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scoring
        assert [dialogue.scores for dialogue in export(served).dialogues] == [{"engagement": 0.5, "turns": 6}] * 2
        assert "engagement" not in (await served.get(link)).text


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (InvalidRequestError("bad", field="turns.0.text"), [{}, {}]),
        (TooLargeError("long"), [{}, {}]),
        (InternalError("oops"), [None, None]),
    ],
)
async def test_a_dialogue_that_cannot_be_scored_holds_no_other_up(
    tmp_path: Path, error: TurnScoreError, kept: list[Any]
) -> None:
    async def score(_turns: list[Turn]) -> Mapping[str, float]:
        raise error

    async with served_study(tmp_path) as served:
        [link] = served.invite()
        await rate_all(served, link)
        scores = make_scores(served, score)
        assert await scores.score_waiting() == 2
        assert await scores.score_waiting() == 0
        assert read_scores(served) == kept


async def test_a_scorer_that_the_service_has_not_is_no_fault_of_the_dialogue(tmp_path: Path) -> None:
    async def score(_turns: list[Turn]) -> Mapping[str, float]:
        raise InvalidRequestError("unknown", field="scorers.0")

    async with served_study(tmp_path) as served:
        [link] = served.invite()
        await rate_all(served, link)
        with pytest.raises(InvalidRequestError):
            await make_scores(served, score).score_waiting()
        assert read_scores(served) == [None, None]


async def test_the_scores_are_the_means_that_the_service_gives_the_system_s_turns(tmp_path: Path) -> None:
    service = MockTurnScore()
    async with served_study(tmp_path) as served, service.async_client() as client:
        [link] = served.invite()
        await rate_all(served, link)
        await make_scores(served, score_by(client, ["engagement"])).score_waiting()
        scored = export(served).dialogues
        reply = await client.score_dialogue(
            [Turn(speaker=turn.speaker, text=turn.text) for turn in scored[0].turns], scorers=["engagement"]
        )
    mean = sum(turn.scores["engagement"].value for turn in reply.turns) / len(reply.turns)
    assert scored[0].scores == {"engagement": pytest.approx(mean)}
    assert service.requests[0].body["scorers"] == ["engagement"]
