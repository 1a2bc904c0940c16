"""A study's ratings as a ratings file: made-up names for raters, no codes, no links. Changes nothing."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.ratings.form import RatedDialogue, SpokenTurn
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import Recordings
from turnscore_assessment.study.tables import dialogues, turns, workers


def export_ratings(
    connection: Connection, study_id: int, plan: StudyPlan, recordings: Recordings, *, with_texts: bool
) -> RatingFile:
    """All rated dialogues, in the order of their ratings; also of workers who have not finished.

    Raises TooFewError where there is none.
    """
    rows = connection.execute(
        select(dialogues, workers.c.rater)
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(workers.c.study_id == study_id, dialogues.c.state == "rated")
        .order_by(dialogues.c.rated_at, dialogues.c.id)
    ).all()
    if not any(not row.degraded for row in rows):
        raise TooFewError(f"study {plan.name!r} has no rated dialogue yet")
    said = _read_texts(connection, study_id) if with_texts else {}
    return RatingFile(plan.description, [_build(row, _find_turns(row, said, recordings, with_texts)) for row in rows])


def _read_texts(connection: Connection, study_id: int) -> dict[str, list[SpokenTurn]]:
    rows = connection.execute(
        select(turns.c.dialogue_id, turns.c.number, turns.c.text)
        .join(dialogues, dialogues.c.id == turns.c.dialogue_id)
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(workers.c.study_id == study_id, dialogues.c.state == "rated")
        .order_by(turns.c.dialogue_id, turns.c.number)
    )
    found: dict[str, list[SpokenTurn]] = {}
    for dialogue_id, number, text in rows:
        turn = SpokenTurn(speaker="system" if number % 2 else "user", text=text)
        found.setdefault(dialogue_id, []).append(turn)
    return found


def _find_turns(
    row: Row[Any], said: dict[str, list[SpokenTurn]], recordings: Recordings, with_texts: bool
) -> list[SpokenTurn]:
    if not with_texts:
        return []
    return said.get(row.id) or list(recordings.find(row.system, row.recorded) or ())


def _build(row: Row[Any], spoken: list[SpokenTurn]) -> RatedDialogue:
    return RatedDialogue(
        worker=row.rater,
        hit=row.rater,
        position=row.position,
        system=row.system,
        degraded=row.degraded,
        ratings=row.ratings,
        dialogue=row.recorded,
        submitted_at=datetime.fromtimestamp(row.rated_at, UTC),
        seconds=round(max(0.0, row.rated_at - row.opened_at), 1),
        topic=row.topic,
        scores=row.scores or {},
        turns=tuple(spoken),
    )
