"""Recorded dialogues that workers rate, ratings under made-up names, and turnscore's scores, hidden from raters.

No study waits for scores: a dialogue that is rated while the service is down is scored when it is up again, after a
restart too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from turnscore_client import (
    AsyncTurnScoreClient,
    InternalError,
    InvalidRequestError,
    TooLargeError,
    Turn,
    TurnScoreError,
)

from turnscore_assessment.comparison.comparison import ScoredDialogue
from turnscore_assessment.errors import AssessmentError, BadFileError, TooFewError
from turnscore_assessment.files import check_row, read_rows
from turnscore_assessment.ratings.rating_file import Name, RatedDialogue, RatedDialogueTurn, RatingFile
from turnscore_assessment.study.chatbots import find_key
from turnscore_assessment.study.database import StudyDatabase, dialogues, turns, workers
from turnscore_assessment.study.plan import ScoringPlan, StudyPlan, SystemPlan
from turnscore_assessment.study.workers import change_dialogue, read_texts, select_of_study

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
        select_of_study(study_id, dialogues, workers.c.rater)
        .where(dialogues.c.state == "rated")
        .order_by(dialogues.c.rated_at, dialogues.c.id)
    ).all()
    if not any(not row.degraded for row in rows):
        raise TooFewError(f"study {plan.name!r} has no rated dialogue yet")
    found, said = [], _read_said(connection, study_id) if with_texts else {}
    for row in rows:
        spoken: Sequence[RatedDialogueTurn] = ()
        if with_texts:
            spoken = said.get(row.id) or recordings.find(row.system, row.recorded) or ()
        dialogue = RatedDialogue(
            **{name: getattr(row, name) for name in ("position", "system", "degraded", "ratings", "topic")},
            worker=row.rater,
            hit=row.rater,
            dialogue=row.recorded,
            submitted_at=datetime.fromtimestamp(row.rated_at, UTC),
            seconds=round(max(0.0, row.rated_at - row.opened_at), 1),
            scores=row.scores or {},
            turns=tuple(spoken),
        )
        found.append(dialogue)
    return RatingFile(plan.description, found)


def _read_said(connection: Connection, study_id: int) -> dict[str, list[RatedDialogueTurn]]:
    """What was said in each rated dialogue, in one query: raters wait meanwhile."""
    rows = connection.execute(
        select_of_study(study_id, turns.c.dialogue_id, turns.c.text)
        .join(turns, turns.c.dialogue_id == dialogues.c.id)
        .where(dialogues.c.state == "rated")
        .order_by(turns.c.dialogue_id, turns.c.number)
    )
    found: dict[str, list[RatedDialogueTurn]] = {}
    for dialogue, text in rows:
        said = found.setdefault(dialogue, [])
        said.append(RatedDialogueTurn(speaker="system" if len(said) % 2 else "user", text=text))
    return found


POLL_SECONDS = 20.0  # Seconds between looks for dialogues without scores. Chosen: no rater waits for them.
CALL_SECONDS = 60.0

_log = logging.getLogger(__name__)

Score = Callable[[list[Turn]], Awaitable[Mapping[str, float]]]


@dataclass(frozen=True)
class BlindScorer:
    """Scores rated dialogues. `wake` reports one; `run` goes on until it is cancelled."""

    database: StudyDatabase
    recordings: Recordings
    score: Score
    _has_work: asyncio.Event = field(default_factory=asyncio.Event)
    # Dialogues on which the service itself failed: retried after a restart only, so that they hold nothing up.
    _failed: set[str] = field(default_factory=set)

    def wake(self) -> None:
        """Makes `run` look at once."""
        self._has_work.set()

    async def run(self) -> None:
        """Looks for dialogues when woken, and now and then."""
        while True:
            self._has_work.clear()
            try:
                while await self.score_waiting():
                    pass
            except (TurnScoreError, SQLAlchemyError) as error:
                _log.warning("turnscore scored nothing, and is asked again in a while: %s", type(error).__name__)
                self._has_work.clear()  # dialogues rated meanwhile wait, too
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._has_work.wait()
            except TimeoutError:
                pass

    async def score_waiting(self) -> int:
        """Tries some dialogues without scores; returns how many. TurnScoreError where the service does not answer."""
        waiting = await self.database.read(_find_unscored, self.database.study_id, self._failed)
        for dialogue_id, system, recorded, texts in waiting:
            try:
                scores = await self._score_turns(self._build_turns(system, recorded, texts))
            except InternalError:
                self._failed.add(dialogue_id)
                continue
            await self.database.run(change_dialogue, dialogue_id, scores=dict(scores))
        return len(waiting)

    async def _score_turns(self, spoken: list[Turn]) -> Mapping[str, float]:
        """The scores by scorer; none where the service will never score these turns."""
        if not any(turn.speaker == "system" for turn in spoken):
            return {}
        try:
            return await self.score(spoken)
        except (InvalidRequestError, TooLargeError) as error:
            if (error.field or "").startswith("scorers"):
                raise  # the service lacks a scorer of the plan: not the dialogue's fault
            _log.warning("turnscore refused a dialogue, which stays without scores: %s", type(error).__name__)
            return {}

    def _build_turns(self, system: str, recorded: str | None, texts: list[str]) -> list[Turn]:
        if recorded is not None:
            said = self.recordings.find(system, recorded) or ()
            return [Turn(speaker=turn.speaker, text=turn.text) for turn in said if turn.text.strip()]
        return [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(texts)]


def make_scoring(plan: ScoringPlan) -> tuple[AsyncTurnScoreClient, Score]:
    """The client of the plan's service, to be closed, and the function that scores by it."""
    try:
        client = AsyncTurnScoreClient(plan.url, api_key=find_key(plan.key_variable), timeout_seconds=CALL_SECONDS)
    except ValueError as error:
        raise AssessmentError(f"turnscore.url: {error}") from None
    return client, score_by(client, plan.scorers)


def score_by(client: AsyncTurnScoreClient, scorers: Sequence[str]) -> Score:
    """Scores a dialogue by a service: each scorer's mean over the system's turns."""

    async def score(spoken: list[Turn]) -> Mapping[str, float]:
        reply = await client.score_dialogue(spoken, scorers=list(scorers) or None)
        scored = ScoredDialogue()
        scored.take(reply)
        return scored.values(with_details=False)

    return score


def _find_unscored(
    connection: Connection, study_id: int, but: Collection[str]
) -> list[tuple[str, str, str | None, list[str]]]:
    rows = connection.execute(
        select_of_study(study_id, dialogues.c.id, dialogues.c.system, dialogues.c.recorded)
        .where(dialogues.c.state == "rated", dialogues.c.scores.is_(None), dialogues.c.id.not_in(list(but)))
        .order_by(dialogues.c.rated_at)
        .limit(16)  # Dialogues that are read from the database at once.
    ).all()
    return [(row.id, row.system, row.recorded, read_texts(connection, row.id)) for row in rows]
