"""Workers in the database: invited, agreeing, leaving. Knows no names; every function runs inside a transaction."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.assignment import assign_dialogues
from turnscore_assessment.study.database import lock_study
from turnscore_assessment.study.links import Link, hash_secret, is_right_secret, make_link, make_word
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.refusals import Refusal, RefusedError
from turnscore_assessment.study.tables import dialogues, turns, workers

MOST_WORKERS = 10_000
"""Most workers of one study. Chosen: forty times the published one."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker with a valid link."""

    id: int
    code: str
    consent_hash: str | None
    has_finished: bool


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a worker is, for those who run the study."""

    code: str
    agreed: bool
    rated: int
    given_up: int
    total: int
    finished: bool
    left: bool


class UnknownWorkerError(AssessmentError):
    """No worker of this study has the code."""


def invite_workers(connection: Connection, study_id: int, count: int, now: float) -> list[Link]:
    """Makes links for so many workers. They are shown once: the database keeps only the secrets' hashes."""
    lock_study(connection, study_id)
    there = connection.scalar(select(func.count()).select_from(workers).where(workers.c.study_id == study_id)) or 0
    if there + count > MOST_WORKERS:
        raise AssessmentError(f"the study has {there} workers, and may have {MOST_WORKERS}")
    links = [make_link() for _ in range(count)]
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


def find_worker(connection: Connection, study_id: int, link: Link) -> Worker:
    """The worker of a link. Raises RefusedError: UNKNOWN_LINK, or LEFT."""
    row = connection.execute(
        select(workers).where(workers.c.code == link.code, workers.c.study_id == study_id)
    ).one_or_none()
    if not is_right_secret(link.secret, row.secret_hash if row else None) or row is None:
        raise RefusedError(Refusal.UNKNOWN_LINK)
    if row.withdrawn_at is not None:
        raise RefusedError(Refusal.LEFT)
    return _build_worker(row)


def read_worker(connection: Connection, worker_id: int) -> Worker:
    """A known worker's current state. Raises RefusedError: LEFT."""
    row = connection.execute(select(workers).where(workers.c.id == worker_id)).one()
    if row.withdrawn_at is not None:
        raise RefusedError(Refusal.LEFT)
    return _build_worker(row)


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
    met = connection.execute(
        select(dialogues.c.system, dialogues.c.recorded, func.count())
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(workers.c.study_id == study_id)
        .group_by(dialogues.c.system, dialogues.c.recorded)
    )
    counts = {(system, recorded): count for system, recorded, count in met}
    rows = [
        {
            "id": make_word(20),
            "worker_id": worker_id,
            "position": position,
            "system": each.system,
            "degraded": each.degraded,
            "recorded": each.recorded,
            "topic": each.topic,
        }
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


def forget_worker(connection: Connection, study_id: int, code: str, now: float) -> None:
    """Deletes the worker with that code, for those who run the study. Raises UnknownWorkerError."""
    worker_id = connection.scalar(select(workers.c.id).where(workers.c.code == code, workers.c.study_id == study_id))
    if worker_id is None:
        raise UnknownWorkerError(f"no worker of this study has the code {code!r}")
    leave(connection, worker_id, now)


def forget_texts(connection: Connection, study_id: int) -> int:
    """Deletes the texts of all conversations of the study; ratings and scores stay. Returns the number of turns."""
    own = (
        select(dialogues.c.id)
        .join(workers, workers.c.id == dialogues.c.worker_id)
        .where(workers.c.study_id == study_id, dialogues.c.state.in_(["rated", "given_up"]))
    )
    return connection.execute(delete(turns).where(turns.c.dialogue_id.in_(own))).rowcount


def list_progress(connection: Connection, study_id: int) -> list[Progress]:
    """Every worker's progress, in the order of invitation."""
    counted = {
        (worker_id, state): count
        for worker_id, state, count in connection.execute(
            select(dialogues.c.worker_id, dialogues.c.state, func.count())
            .join(workers, workers.c.id == dialogues.c.worker_id)
            .where(workers.c.study_id == study_id)
            .group_by(dialogues.c.worker_id, dialogues.c.state)
        )
    }
    states = ("waiting", "open", "rated", "given_up")
    return [
        Progress(
            code=row.code,
            agreed=row.consented_at is not None,
            rated=counted.get((row.id, "rated"), 0),
            given_up=counted.get((row.id, "given_up"), 0),
            total=sum(counted.get((row.id, state), 0) for state in states),
            finished=row.finished_at is not None,
            left=row.withdrawn_at is not None,
        )
        for row in connection.execute(select(workers).where(workers.c.study_id == study_id).order_by(workers.c.id))
    ]


def _build_worker(row: Row[Any]) -> Worker:
    return Worker(id=row.id, code=row.code, consent_hash=row.consent_hash, has_finished=row.finished_at is not None)
