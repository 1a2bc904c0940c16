"""Workers and their dialogues in the database: invited by secret links, agreeing, talking, rating, giving up, leaving.

A link is `https://host/#CODE.SECRET`: browsers send nothing after `#`, so the secret is in no log and no Referer, and
only its hash is kept. A dialogue goes waiting -> open -> rated, or, where its chatbot fails again and again, given_up.
A repeated request is done once: a message is known by its number, a rating by its dialogue. Every function with a
connection runs inside a transaction. The page names no system, and nothing of another worker.
"""

import hashlib
import hmac
import random
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.ratings.rating_file import RatedDialogueTurn
from turnscore_assessment.study.database import dialogues, lock_study, turns, workers
from turnscore_assessment.study.plan import StudyPlan


class StudyRefusal(Enum):
    """Status and sentence by code. No sentence says which system is behind a conversation."""

    UNKNOWN_LINK = 401, "This link is not known. Please open the link that you were sent, whole."
    FOREIGN_ORIGIN = 403, "The request does not come from this study's page."
    NO_SUCH_DIALOGUE = 404, "There is no such conversation."
    NO_SUCH_PAGE = 404, "There is no such page."
    NO_SUCH_METHOD = 405, "This request has the wrong method."
    NOT_AGREED = 409, "You have not agreed to take part yet."
    TEXT_CHANGED = 409, "The text that you agreed to has changed. Please read it again."
    NOT_OPEN = 409, "This conversation is not open."
    OUT_OF_TURN = 409, "The conversation has gone on elsewhere, perhaps in another tab."
    BUSY = 409, "The chatbot is still answering."
    NO_MORE_INPUTS = 409, "This conversation has reached its end. Please rate it."
    TOO_FEW_INPUTS = 409, "Please talk a little longer before you rate the conversation."
    ALREADY_RATED = 409, "This conversation has been rated already."
    STILL_ANSWERS = 409, "The chatbot has not failed so often. Please try again."
    LEFT = 410, "You have left the study, and what you said and rated is deleted."
    TOO_LARGE = 413, "The request is too large."
    NOT_JSON = 415, "The request must be JSON."
    INVALID = 422, "The request is not valid."
    NO_REPLY = 502, "The chatbot did not answer. Please try again."
    FULL = 503, "There are too many conversations at the moment. Please try again in a few minutes."
    BROKEN = 500, "Something went wrong. What you said so far is stored; please load the page again."

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        self.sentence = sentence

    @property
    def code(self) -> str:
        """Its name on the wire."""
        return self.name.lower()


class RefusedError(Exception):
    """A refused request; `detail` replaces the sentence."""

    def __init__(self, refusal: StudyRefusal, detail: str = "") -> None:
        super().__init__(detail or refusal.sentence)
        self.refusal = refusal


LONGEST_LINK = 200  # Most characters of CODE.SECRET. Chosen: four times what is made.
# Letters of a code, without those that are confused when read aloud or written by hand.
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_UNKNOWN = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class WorkerLink:
    """A worker's code and secret."""

    code: str  # The worker's name for those who run the study alone; it also shows that the worker has finished.
    secret: str

    def __str__(self) -> str:
        return f"{self.code}.{self.secret}"


def make_word(letters: int) -> str:
    """A random word that can be read aloud."""
    return "".join(secrets.choice(_LETTERS) for _ in range(letters))


def parse_link(text: str) -> WorkerLink | None:
    """The link in a request; None where its form is wrong."""
    code, dot, secret = text.partition(".")
    is_whole = len(text) <= LONGEST_LINK and text.isascii() and code and dot and secret
    return WorkerLink(code, secret) if is_whole else None


def hash_secret(secret: str) -> str:
    """The stored hash. A plain one: the secret is random and long, so guessing is hopeless."""
    return hashlib.sha256(secret.encode()).hexdigest()


Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Assigned:
    """One dialogue that a worker is to rate."""

    system: str
    degraded: bool
    recorded: str | None
    topic: str | None


def assign_dialogues(
    plan: StudyPlan,
    recordings: Mapping[str, Sequence[str]],
    met: Mapping[tuple[str, str | None], int],
    generator: random.Random,
) -> list[Assigned]:
    """A worker's dialogues in order.

    All degraded systems are among them, and of the others those that were assigned least often, ties broken at random;
    likewise of a system's recorded dialogues (`recordings`, names by system). `met` counts the other workers'
    assignments by system and recorded dialogue.
    """
    by_system: Counter[str] = Counter()
    for (system, _), count in met.items():
        by_system[system] += count
    ordinary = [system for system in plan.systems if not system.degraded]
    chosen = _take_least(ordinary, plan.systems_per_worker, lambda system: by_system[system.name], generator)
    chosen += [system for system in plan.systems if system.degraded]
    topics = plan.chat.topics if plan.kind == "chat" else ()
    assigned = []
    for own in chosen:
        names: Sequence[str | None] = [None] * plan.dialogues_per_system
        if plan.kind == "recorded":
            times: dict[str | None, int] = {name: met.get((own.name, name), 0) for name in recordings[own.name]}
            names = _take_least(recordings[own.name], plan.dialogues_per_system, times.__getitem__, generator)
        for name in names:
            topic = generator.choice(topics) if topics else None
            assigned.append(Assigned(own.name, own.degraded, name, topic))
    generator.shuffle(assigned)
    return assigned


def _take_least(
    things: Sequence[Thing], count: int | None, measure: Callable[[Thing], int], generator: random.Random
) -> list[Thing]:
    shuffled = list(things)
    generator.shuffle(shuffled)
    return sorted(shuffled, key=measure)[:count]


def select_of_study(study_id: int, *columns: Any) -> Select[Any]:
    """These columns of the study's dialogues and their workers."""
    joined = dialogues.join(workers, workers.c.id == dialogues.c.worker_id)
    return select(*columns).select_from(joined).where(workers.c.study_id == study_id)


MOST_WORKERS = 10_000  # Most workers of one study. Chosen: forty times the published one.


@dataclass(frozen=True)
class Worker:
    """A worker with a valid link."""

    id: int
    code: str
    consent_hash: str | None
    has_finished: bool


@dataclass(frozen=True)
class WorkerProgress:
    """How far a worker is, for those who run the study; the state is `left`, `finished`, `agreed` or `-`."""

    code: str
    state: str
    rated: int
    given_up: int
    total: int


class UnknownWorkerError(AssessmentError):
    """No worker of this study has the code."""


def invite_workers(connection: Connection, study_id: int, count: int, now: float) -> list[WorkerLink]:
    """Makes links for so many workers. They are shown once: the database keeps only the secrets' hashes."""
    lock_study(connection, study_id)
    there = connection.scalar(select(func.count()).select_from(workers).where(workers.c.study_id == study_id)) or 0
    if there + count > MOST_WORKERS:
        raise AssessmentError(f"the study has {there} workers, and may have {MOST_WORKERS}")
    # 256 bits: guesses need no limit.
    links = [WorkerLink(make_word(10), secrets.token_urlsafe(32)) for _ in range(count)]
    rows = [
        {
            "study_id": study_id,
            "code": link.code,
            "secret_hash": hash_secret(link.secret),
            "rater": f"w-{make_word(8)}",
            "invited_at": now,
        }
        for link in links
    ]
    connection.execute(insert(workers), rows)
    return links


def find_worker(connection: Connection, study_id: int, link: WorkerLink) -> Worker:
    """The worker of a link. Raises RefusedError: UNKNOWN_LINK, or LEFT."""
    named = select(workers).where(workers.c.code == link.code, workers.c.study_id == study_id)
    row = connection.execute(named).one_or_none()
    # Compared in constant time, also where no worker has that code.
    is_right = hmac.compare_digest(hash_secret(link.secret), row.secret_hash if row else _UNKNOWN)
    if row is None or not is_right:
        raise RefusedError(StudyRefusal.UNKNOWN_LINK)
    return _build_worker(row)


def read_worker(connection: Connection, worker_id: int) -> Worker:
    """A known worker's current state. Raises RefusedError: LEFT."""
    return _build_worker(connection.execute(select(workers).where(workers.c.id == worker_id)).one())


def agree(
    connection: Connection,
    study_id: int,
    worker_id: int,
    plan: StudyPlan,
    recordings: Mapping[str, Sequence[str]],
    consent_hash: str,
    now: float,
    generator: random.Random,
) -> None:
    """Records the worker's agreement and assigns dialogues; does nothing the second time."""
    lock_study(connection, study_id)
    done = connection.execute(
        update(workers)
        .where(workers.c.id == worker_id, workers.c.consented_at.is_(None), workers.c.withdrawn_at.is_(None))
        .values(consented_at=now, consent_hash=consent_hash)
    )
    if done.rowcount == 0:
        return
    each = dialogues.c.system, dialogues.c.recorded
    met = connection.execute(select_of_study(study_id, *each, func.count()).group_by(*each))
    counts = {(system, recorded): count for system, recorded, count in met}
    rows = [
        {"id": make_word(20), "worker_id": worker_id, "position": position, **asdict(each)}
        for position, each in enumerate(assign_dialogues(plan, recordings, counts, generator))
    ]
    connection.execute(insert(dialogues), rows)


def leave(connection: Connection, worker_id: int, now: float) -> None:
    """Deletes everything that the worker said and rated; only the link's being used up stays."""
    own = select(dialogues.c.id).where(dialogues.c.worker_id == worker_id)
    connection.execute(delete(turns).where(turns.c.dialogue_id.in_(own)))
    connection.execute(delete(dialogues).where(dialogues.c.worker_id == worker_id))
    connection.execute(
        update(workers)
        .where(workers.c.id == worker_id)
        .values(withdrawn_at=now, consented_at=None, consent_hash=None, finished_at=None)
    )


def delete_worker(connection: Connection, study_id: int, code: str, now: float) -> None:
    """Deletes the worker with that code, for those who run the study. Raises UnknownWorkerError."""
    worker_id = connection.scalar(select(workers.c.id).where(workers.c.code == code, workers.c.study_id == study_id))
    if worker_id is None:
        raise UnknownWorkerError(f"no worker of this study has the code {code!r}")
    leave(connection, worker_id, now)


def delete_texts(connection: Connection, study_id: int) -> int:
    """Deletes the texts of all conversations of the study; ratings and scores stay. Returns the number of turns."""
    own = select_of_study(study_id, dialogues.c.id).where(dialogues.c.state.in_(["rated", "given_up"]))
    return connection.execute(delete(turns).where(turns.c.dialogue_id.in_(own))).rowcount


def list_progress(connection: Connection, study_id: int) -> list[WorkerProgress]:
    """Every worker's progress, in the order of invitation."""
    own = dialogues.c.worker_id, dialogues.c.state
    counts = connection.execute(select_of_study(study_id, *own, func.count()).group_by(*own))
    counted = {(worker_id, state): count for worker_id, state, count in counts}
    found = []
    for row in connection.execute(select(workers).where(workers.c.study_id == study_id).order_by(workers.c.id)):
        rated, given_up, *others = (counted.get((row.id, each), 0) for each in ("rated", "given_up", "open", "waiting"))
        states = {"left": row.withdrawn_at, "finished": row.finished_at, "agreed": row.consented_at}
        state = next((name for name, since in states.items() if since is not None), "-")
        found.append(WorkerProgress(row.code, state, rated, given_up, rated + given_up + sum(others)))
    return found


def _build_worker(row: Row[Any]) -> Worker:
    if row.withdrawn_at is not None:
        raise RefusedError(StudyRefusal.LEFT)
    return Worker(row.id, row.code, row.consent_hash, row.finished_at is not None)


FAILURES_TO_GIVE_UP = 3  # Failed replies in a row after which a worker may go on to the next system.
# Seconds beyond `reply_seconds` after which a message may be asked again: its asker has died.
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


@dataclass(frozen=True)
class Standing:
    """Where a worker stands; `open` is the dialogue under way."""

    total: int
    done: int
    open: WorkerDialogue | None


def find_standing(connection: Connection, worker_id: int) -> Standing:
    rows = connection.execute(
        select(dialogues).where(dialogues.c.worker_id == worker_id).order_by(dialogues.c.position)
    ).all()
    begun = [_build_dialogue(connection, row) for row in rows if row.state == "open"]
    return Standing(len(rows), sum(row.state in ("rated", "given_up") for row in rows), begun[0] if begun else None)


def change_dialogue(connection: Connection, dialogue_id: str, /, **values: Any) -> None:
    """Sets these columns of a dialogue."""
    connection.execute(update(dialogues).where(dialogues.c.id == dialogue_id).values(**values))


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
        select_of_study(study_id, func.count()).where(dialogues.c.state == "open", dialogues.c.touched_at > since)
    )
    if (others or 0) >= plan.limits.open_dialogues:
        raise RefusedError(StudyRefusal.FULL)
    change_dialogue(connection, rows[0].id, state="open", opened_at=now, touched_at=now)


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
    change_dialogue(connection, dialogue_id, asked_at=now, touched_at=now)
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
    change_dialogue(connection, dialogue_id, asked_at=None, failures=0, touched_at=now)


def note_failure(connection: Connection, dialogue_id: str) -> None:
    """Records that a reply failed; the message may be sent again."""
    change_dialogue(connection, dialogue_id, asked_at=None, failures=dialogues.c.failures + 1)


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
    change_dialogue(connection, row.id, asked_at=None, **values)
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
    shown = {name: getattr(row, name) for name in ("id", "position", "system", "recorded", "topic", "failures")}
    return WorkerDialogue(**shown, texts=read_texts(connection, row.id))


def read_texts(connection: Connection, dialogue_id: str) -> list[str]:
    """What was said: the worker said even places, the system odd ones."""
    said = select(turns.c.text).where(turns.c.dialogue_id == dialogue_id).order_by(turns.c.number)
    return list(connection.execute(said).scalars())


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
        said = [{"speaker": "system" if at % 2 else "user", "text": text} for at, text in enumerate(dialogue.texts)]
    return {
        "id": dialogue.id,
        "number": dialogue.position + 1,
        "topic": dialogue.topic,
        "turns": said,
        "may_give_up": dialogue.failures >= FAILURES_TO_GIVE_UP,
    }
