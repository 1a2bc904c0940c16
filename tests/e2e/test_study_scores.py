"""A study's dialogues are scored by the real service, unseen, with the numbers that everybody gets."""

from pathlib import Path

import pytest
from support.processes import RunningService
from support.studies import served_study
from turnscore_assessment.study.blind_scorer import BlindScorer, make_scoring
from turnscore_assessment.study.plan import ScoringPlan
from turnscore_assessment.study.recordings import export_ratings, read_recordings
from turnscore_client import Turn, TurnScoreClient


@pytest.mark.e2e
async def test_a_rated_conversation_gets_the_service_s_scores(
    service: RunningService, client: TurnScoreClient, tmp_path: Path
) -> None:
    scoring, score = make_scoring(ScoringPlan(url=service.url, scorers=("engagement", "sentiment_stop")))
    systems = [{"name": "A", "url": "http://bots.test/v1/chat/completions", "model": "companion"}]
    async with scoring, served_study(tmp_path, systems=systems) as served:
        [link] = served.invite()
        standing = await served.agree(link)
        dialogue = standing["dialogue"]["id"]
        await served.talk(link, dialogue)
        await served.post(link, "rating", dialogue=dialogue, ratings={"fun": 70, "repetitive": 20})
        plan = served.study.plan
        recordings = read_recordings(plan)
        await BlindScorer(served.database, recordings, score).score_waiting()
        ratings = served.database.run_here(export_ratings, served.database.study_id, plan, recordings, with_texts=True)
    [rated] = ratings.dialogues
    reply = client.score_dialogue(
        [Turn(speaker=turn.speaker, text=turn.text) for turn in rated.turns], scorers=["engagement", "sentiment_stop"]
    )
    for scorer, mean in rated.scores.items():
        values = [turn.scores[scorer].value for turn in reply.turns]
        assert mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert set(rated.scores) == {"engagement", "sentiment_stop"}
