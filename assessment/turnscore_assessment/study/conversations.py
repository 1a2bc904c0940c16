"""Dialogues in the database, begun, talked, rated, given up, and what a worker's page shows of them.

A dialogue goes waiting -> open -> rated, or, where its chatbot fails again and again, given_up. A repeated request is
done once: a message is known by its number, a rating by its dialogue. Every function with a connection runs inside a
transaction. The page names no system, and nothing of another worker.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from turnscore_assessment.ratings.rating_file import RatedDialogueTurn
from turnscore_assessment.study.database import dialogues, lock_study, turns, workers
from turnscore_assessment.study.page_requests import RefusedError, StudyRefusal
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.workers import Worker

FAILURES_TO_GIVE_UP = 3  # Failed replies in a row after which a worker may go on to the next system. Chosen.
# Seconds beyond `reply_seconds` after which a message may be asked again: its asker has died. Chosen.
ASKING_SLACK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class WorkerDialogue:
    """A dialogue as its worker may see it, and its hidden fields."""

    id: str
    position: int
    system: str
    recorded: str | None
    topic: str | None
    texts: list[str]  # The worker said even places, the system odd ones.
    failures: int

    @property
    def inputs(self) -> int:
        """How many messages the worker wrote."""
        return (len(self.texts) + 1) // 2

    @property
    def replies(self) -> int:
        """How many of the worker's messages were answered."""
        return len(self.texts) // 2

    @property
    def is_answered(self) -> bool:
        """Whether the worker's last message has a reply."""
        return len(self.texts) % 2 == 0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a worker stands; `open` is the dialogue under way."""

    total: int
    done: int
    open: WorkerDialogue | None


def find_standing(connection: Connection, worker_id: int) -> Standing:
    rows = connection.execute(
        select(dialogues).where(dialogues.c.worker_id == worker_id).order_by(dialogues.c.position)
    ).all()
    begun = [row for row in rows if row.state == "open"]
    return Standing(
        total=len(rows),
        done=sum(row.state in ("rated", "given_up") for row in rows),
        open=_build_dialogue(connection, begun[0]) if begun else None,
    )


def open_next(connection: Connection, study_id: int, worker_id: int, plan: StudyPlan, now: float) -> None:
    """Begins the worker's next dialogue, unless one is open or none is left. Raises RefusedError: FULL."""
    lock_study(connection, study_id)
    rows = connection.execute(
        select(dialogues.c.id, dialogues.c.state)
        .where(dialogues.c.worker_id == worker_id, dialogues.c.state.in_(["open", "waiting"]))
        .order_by(dialogues.c.position)
    ).all()
    if not rows or any(row.state == "open" for row in rows):
        return
    since = now - 60 * plan.limits.idle_minutes
    others = connection.scalar(
        select(func.count())
        .select_from(dialogues.join(workers, workers.c.id == dialogues.c.worker_id))
        .where(dialogues.c.state == "open", dialogues.c.touched_at > since, workers.c.study_id == study_id)
    )
    if (others or 0) >= plan.limits.open_dialogues:
        raise RefusedError(StudyRefusal.FULL)
    connection.execute(
        update(dialogues).where(dialogues.c.id == rows[0].id).values(state="open", opened_at=now, touched_at=now)
    )


def take_message(
    connection: Connection, worker_id: int, dialogue_id: str, number: int, text: str, plan: StudyPlan, now: float
) -> WorkerDialogue:
    """Stores the worker's message `number` (from 0) unless it is stored, and marks its reply as being asked for.

    Where the message has a reply, nothing is marked, and the dialogue `is_answered`. Raises RefusedError:
    NO_SUCH_DIALOGUE, NOT_OPEN (or it is recorded), NO_MORE_INPUTS, OUT_OF_TURN (another number is due, or the text
    differs), BUSY.
    """
    row = _find_open(connection, worker_id, dialogue_id)
    if row.recorded is not None:
        raise RefusedError(StudyRefusal.NOT_OPEN)
    dialogue = _build_dialogue(connection, row)
    if number < dialogue.inputs:
        if dialogue.texts[2 * number] != text:
            raise RefusedError(StudyRefusal.OUT_OF_TURN)
        if len(dialogue.texts) > 2 * number + 1:
            return dialogue
    elif number > dialogue.inputs or not dialogue.is_answered:
        raise RefusedError(StudyRefusal.OUT_OF_TURN)
    elif number >= plan.chat.inputs_at_most:
        raise RefusedError(StudyRefusal.NO_MORE_INPUTS)
    if _is_being_asked(row, plan, now):
        raise RefusedError(StudyRefusal.BUSY)
    if number == dialogue.inputs:
        connection.execute(insert(turns).values(dialogue_id=dialogue_id, number=2 * number, text=text, said_at=now))
        dialogue.texts.append(text)
    connection.execute(update(dialogues).where(dialogues.c.id == dialogue_id).values(asked_at=now, touched_at=now))
    return dialogue


def store_reply(connection: Connection, dialogue_id: str, number: int, text: str, now: float) -> None:
    """Stores the reply to message `number`, unless the worker has left or another one came first."""
    row = _lock_dialogue(connection, dialogue_id)
    if row is None or row.state != "open":
        return
    place = 2 * number + 1
    there = connection.scalar(select(turns.c.number).where(turns.c.dialogue_id == dialogue_id, turns.c.number == place))
    if there is None:
        connection.execute(insert(turns).values(dialogue_id=dialogue_id, number=place, text=text, said_at=now))
    connection.execute(
        update(dialogues).where(dialogues.c.id == dialogue_id).values(asked_at=None, failures=0, touched_at=now)
    )


def note_failure(connection: Connection, dialogue_id: str) -> None:
    """Records that a reply failed; the message may be sent again."""
    connection.execute(
        update(dialogues).where(dialogues.c.id == dialogue_id).values(asked_at=None, failures=dialogues.c.failures + 1)
    )


def rate(
    connection: Connection, worker_id: int, dialogue_id: str, ratings: Mapping[str, float], plan: StudyPlan, now: float
) -> None:
    """Stores the ratings and ends the dialogue; the same ratings a second time change nothing.

    RefusedError: NO_SUCH_DIALOGUE, NOT_OPEN, TOO_FEW_INPUTS, BUSY, ALREADY_RATED (with other ratings).
    """
    row = _lock_dialogue(connection, dialogue_id)
    if row is not None and row.worker_id == worker_id and row.state == "rated":
        if row.ratings == dict(ratings):
            return
        raise RefusedError(StudyRefusal.ALREADY_RATED)
    row = _find_open(connection, worker_id, dialogue_id)
    dialogue = _build_dialogue(connection, row)
    if dialogue.recorded is None:
        if _is_being_asked(row, plan, now):
            raise RefusedError(StudyRefusal.BUSY)
        if dialogue.replies < plan.chat.inputs_at_least:
            raise RefusedError(StudyRefusal.TOO_FEW_INPUTS)
    _end(connection, row, now, state="rated", rated_at=now, ratings=dict(ratings))


def give_up(connection: Connection, worker_id: int, dialogue_id: str, now: float) -> None:
    """Ends a dialogue whose chatbot fails, unrated. RefusedError: NO_SUCH_DIALOGUE, NOT_OPEN, STILL_ANSWERS."""
    row = _find_open(connection, worker_id, dialogue_id)
    if row.failures < FAILURES_TO_GIVE_UP:
        raise RefusedError(StudyRefusal.STILL_ANSWERS)
    _end(connection, row, now, state="given_up")


def _end(connection: Connection, row: Row[Any], now: float, **values: Any) -> None:
    connection.execute(update(dialogues).where(dialogues.c.id == row.id).values(asked_at=None, **values))
    left = connection.scalar(
        select(func.count())
        .select_from(dialogues)
        .where(dialogues.c.worker_id == row.worker_id, dialogues.c.state.in_(["open", "waiting"]))
    )
    if not left:
        connection.execute(update(workers).where(workers.c.id == row.worker_id).values(finished_at=now))


def _is_being_asked(row: Row[Any], plan: StudyPlan, now: float) -> bool:
    since = now - plan.limits.reply_seconds - ASKING_SLACK_SECONDS
    return row.asked_at is not None and row.asked_at > since


def _lock_dialogue(connection: Connection, dialogue_id: str) -> Row[Any] | None:
    return connection.execute(select(dialogues).where(dialogues.c.id == dialogue_id).with_for_update()).one_or_none()


def _find_open(connection: Connection, worker_id: int, dialogue_id: str) -> Row[Any]:
    """Another worker's dialogue counts as one that does not exist."""
    row = _lock_dialogue(connection, dialogue_id)
    if row is None or row.worker_id != worker_id:
        raise RefusedError(StudyRefusal.NO_SUCH_DIALOGUE)
    if row.state != "open":
        raise RefusedError(StudyRefusal.NOT_OPEN)
    return row


def _build_dialogue(connection: Connection, row: Row[Any]) -> WorkerDialogue:
    said = connection.execute(
        select(turns.c.text).where(turns.c.dialogue_id == row.id).order_by(turns.c.number)
    ).scalars()
    shown = {name: getattr(row, name) for name in ("id", "position", "system", "recorded", "topic", "failures")}
    return WorkerDialogue(**shown, texts=list(said))


def hash_consent(plan: StudyPlan) -> str:
    """SHA-256 of the text that workers agree to."""
    return hashlib.sha256(plan.consent.encode()).hexdigest()


def show_study(plan: StudyPlan) -> dict[str, Any]:
    """The part that is the same for every worker."""
    return {
        "title": plan.title,
        "kind": plan.kind,
        "consent": split_paragraphs(plan.consent),
        "consent_hash": hash_consent(plan),
        "instructions": split_paragraphs(plan.instructions),
        "contact": plan.contact,
        **plan.chat.model_dump(exclude={"topics"}),
        "criteria": [
            criterion.model_dump(include={"name", "statement", "low", "high", "low_end", "high_end"})
            for criterion in plan.criteria
        ],
    }


def show_standing(
    plan: StudyPlan, worker: Worker, standing: Standing, recorded: Sequence[RatedDialogueTurn] | None
) -> dict[str, Any]:
    """Where the worker stands; the code and the thanks only at the end."""
    is_finished = worker.has_finished
    return {
        "agreed": worker.consent_hash is not None,
        "total": standing.total,
        "done": standing.done,
        "dialogue": _show_dialogue(standing.open, recorded) if standing.open else None,
        "finished": is_finished,
        "code": worker.code if is_finished else None,
        "thanks": split_paragraphs(plan.thanks) if is_finished else [],
    }


def split_paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.replace("\r\n", "\n").split("\n\n") if part.strip()]


def _show_dialogue(dialogue: WorkerDialogue, recorded: Sequence[RatedDialogueTurn] | None) -> dict[str, Any]:
    if recorded is not None:
        said = [{"speaker": turn.speaker, "text": turn.text} for turn in recorded]
    else:
        said = [
            {"speaker": "system" if place % 2 else "user", "text": text} for place, text in enumerate(dialogue.texts)
        ]
    return {
        "id": dialogue.id,
        "number": dialogue.position + 1,
        "topic": dialogue.topic,
        "turns": said,
        "may_give_up": dialogue.failures >= FAILURES_TO_GIVE_UP,
    }
