"""turnscore's scores of rated dialogues, recorded with the ratings and hidden from raters. No study waits for them.

A dialogue that is rated while the service is down is scored when it is up again, after a restart too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError
from turnscore_client import (
    AsyncTurnScoreClient,
    InternalError,
    InvalidRequestError,
    TooLargeError,
    Turn,
    TurnScoreError,
)

from turnscore_assessment.comparison.comparison import UnscoredDialogue, read_reply
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.chatbots import find_key
from turnscore_assessment.study.database import StudyDatabase, dialogues, turns, workers
from turnscore_assessment.study.plan import ScoringPlan
from turnscore_assessment.study.recordings import Recordings

POLL_SECONDS = 20.0  # Seconds between looks for dialogues without scores. Chosen: no rater waits for them.
CALL_SECONDS = 60.0
AT_A_TIME = 16  # Dialogues that are read from the database at once.

_log = logging.getLogger(__name__)

Score = Callable[[list[Turn]], Awaitable[Mapping[str, float]]]


class BlindScorer:
    """Scores rated dialogues. `wake` reports one; `run` goes on until it is cancelled."""

    def __init__(self, database: StudyDatabase, recordings: Recordings, score: Score) -> None:
        self._database = database
        self._recordings = recordings
        self._score = score
        self._has_work = asyncio.Event()
        # Dialogues on which the service itself failed: retried after a restart only, so that they hold nothing up.
        self._failed: set[str] = set()

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
        waiting = await self._database.read(_find_unscored, self._database.study_id, self._failed)
        for dialogue_id, system, recorded, texts in waiting:
            try:
                scores = await self._score_turns(self._build_turns(system, recorded, texts))
            except InternalError:
                self._failed.add(dialogue_id)
                continue
            await self._database.run(_store_scores, dialogue_id, scores)
        return len(waiting)

    async def _score_turns(self, spoken: list[Turn]) -> Mapping[str, float]:
        """The scores by scorer; none where the service will never score these turns."""
        if not any(turn.speaker == "system" for turn in spoken):
            return {}
        try:
            return await self._score(spoken)
        except (InvalidRequestError, TooLargeError) as error:
            if (error.field or "").startswith("scorers"):
                raise  # the service lacks a scorer of the plan: not the dialogue's fault
            _log.warning("turnscore refused a dialogue, which stays without scores: %s", type(error).__name__)
            return {}

    def _build_turns(self, system: str, recorded: str | None, texts: list[str]) -> list[Turn]:
        if recorded is not None:
            said = self._recordings.find(system, recorded) or ()
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
        asked = UnscoredDialogue(name=None, line=0, turns=spoken)
        return read_reply(reply, asked).values(with_details=False)

    return score


def _find_unscored(
    connection: Connection, study_id: int, but: Collection[str]
) -> list[tuple[str, str, str | None, list[str]]]:
    rows = connection.execute(
        select(dialogues.c.id, dialogues.c.system, dialogues.c.recorded)
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(dialogues.c.state == "rated", dialogues.c.scores.is_(None), workers.c.study_id == study_id)
        .where(dialogues.c.id.not_in(list(but)))
        .order_by(dialogues.c.rated_at)
        .limit(AT_A_TIME)
    ).all()
    said = select(turns.c.text).order_by(turns.c.number)
    return [
        (
            row.id,
            row.system,
            row.recorded,
            list(connection.execute(said.where(turns.c.dialogue_id == row.id)).scalars()),
        )
        for row in rows
    ]


def _store_scores(connection: Connection, dialogue_id: str, scores: Mapping[str, float]) -> None:
    connection.execute(update(dialogues).where(dialogues.c.id == dialogue_id).values(scores=dict(scores)))
