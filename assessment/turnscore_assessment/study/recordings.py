"""Recorded dialogues that workers read and rate, and a study's ratings as a ratings file under made-up names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Row, select

from turnscore_assessment.errors import BadFileError, TooFewError
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.ratings.rating_file import Name, RatedDialogue, RatedDialogueTurn, RatingFile
from turnscore_assessment.study.database import dialogues, turns, workers
from turnscore_assessment.study.plan import StudyPlan, SystemPlan

MOST_DIALOGUES = 20_000  # Most dialogues of one system. Chosen: more than people rate.
MOST_TURNS = 200  # Most turns of one dialogue. Chosen: no rater reads more.


class _RecordedLine(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True, extra="ignore")

    id: Annotated[Name, Field(validation_alias=AliasChoices("id", "dialogue"))]
    turns: Annotated[tuple[RatedDialogueTurn, ...], Field(min_length=1, max_length=MOST_TURNS)]


@dataclass(frozen=True)
class Recordings:
    """Recorded dialogues by system and name."""

    turns: Mapping[str, Mapping[str, Sequence[RatedDialogueTurn]]]

    @property
    def names(self) -> dict[str, list[str]]:
        """The dialogues' names, by system."""
        return {system: list(dialogues) for system, dialogues in self.turns.items()}

    def find(self, system: str, name: str | None) -> Sequence[RatedDialogueTurn] | None:
        """The turns of a dialogue; None where the files no longer have it."""
        return self.turns.get(system, {}).get(name) if name is not None else None


def read_recordings(plan: StudyPlan) -> Recordings:
    """The recorded dialogues of all systems; BadFileError names the file, the line and the field."""
    return Recordings({system.name: _read(plan, system) for system in plan.systems if system.dialogues is not None})


def _read(plan: StudyPlan, system: SystemPlan) -> dict[str, Sequence[RatedDialogueTurn]]:
    path = system.dialogues
    assert path is not None
    found: dict[str, Sequence[RatedDialogueTurn]] = {}
    for number, fields in read_rows(path):
        line = check_row(_RecordedLine.model_validate, path, number, fields)
        if line.id in found:
            raise BadFileError(path, number, f"id: {line.id!r} was already used")
        if not any(turn.speaker == "system" and turn.text.strip() for turn in line.turns):
            raise BadFileError(path, number, "turns: the system says nothing")
        if len(found) == MOST_DIALOGUES:
            raise BadFileError(path, number, f"the file holds more than {MOST_DIALOGUES:,} dialogues")
        found[line.id] = line.turns
    if len(found) < plan.dialogues_per_system:
        raise BadFileError(path, 0, f"has {len(found)} dialogues, fewer than dialogues_per_system")
    return found


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


def _read_texts(connection: Connection, study_id: int) -> dict[str, list[RatedDialogueTurn]]:
    rows = connection.execute(
        select(turns.c.dialogue_id, turns.c.number, turns.c.text)
        .join(dialogues, dialogues.c.id == turns.c.dialogue_id)
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(workers.c.study_id == study_id, dialogues.c.state == "rated")
        .order_by(turns.c.dialogue_id, turns.c.number)
    )
    found: dict[str, list[RatedDialogueTurn]] = {}
    for dialogue_id, number, text in rows:
        turn = RatedDialogueTurn(speaker="system" if number % 2 else "user", text=text)
        found.setdefault(dialogue_id, []).append(turn)
    return found


def _find_turns(
    row: Row[Any], said: dict[str, list[RatedDialogueTurn]], recordings: Recordings, with_texts: bool
) -> list[RatedDialogueTurn]:
    if not with_texts:
        return []
    return said.get(row.id) or list(recordings.find(row.system, row.recorded) or ())


def _build(row: Row[Any], spoken: list[RatedDialogueTurn]) -> RatedDialogue:
    return RatedDialogue(
        **{name: getattr(row, name) for name in ("position", "system", "degraded", "ratings", "topic")},
        worker=row.rater,
        hit=row.rater,
        dialogue=row.recorded,
        submitted_at=datetime.fromtimestamp(row.rated_at, UTC),
        seconds=round(max(0.0, row.rated_at - row.opened_at), 1),
        scores=row.scores or {},
        turns=tuple(spoken),
    )
