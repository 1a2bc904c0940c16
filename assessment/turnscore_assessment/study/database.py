"""The database of a study, SQLite or Postgres: its tables, and one transaction for each piece of work, in threads.

Times are seconds since 1970, in UTC.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio.to_thread
from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.plan import StudyPlan

metadata = MetaData()

# One row per study; `fixed` holds what its plan may not change: kind, criteria, systems.
studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("fixed", JSON, nullable=False),
)

# One row per link. `rater` is the made-up name in exports, which does not follow from `code`; `consent_hash` is the
# SHA-256 of the agreed text. There is no name, no address, no account and no IP address.
workers = Table(
    "workers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("code", String(40), nullable=False, unique=True),
    Column("secret_hash", String(64), nullable=False),
    Column("rater", String(40), nullable=False, unique=True),
    Column("invited_at", Double, nullable=False),
    Column("consented_at", Double),
    Column("consent_hash", String(64)),
    Column("finished_at", Double),
    Column("withdrawn_at", Double),
)

# One row for each dialogue that a worker is to rate, made when the worker agrees. `asked_at` is set while a reply is
# under way; `failures` counts failed replies in a row.
dialogues = Table(
    "dialogues",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("worker_id", ForeignKey("workers.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("system", String(200), nullable=False),
    Column("degraded", Boolean, nullable=False),
    Column("recorded", String(200)),
    Column("topic", Text),
    Column("state", String(10), nullable=False, server_default="waiting"),
    Column("opened_at", Double),
    Column("touched_at", Double),
    Column("asked_at", Double),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("rated_at", Double),
    Column("ratings", JSON(none_as_null=True)),
    Column("scores", JSON(none_as_null=True)),
    UniqueConstraint("worker_id", "position"),
    CheckConstraint("state in ('waiting', 'open', 'rated', 'given_up')", name="known_state"),
    Index("dialogues_by_state", "state"),
)

# The texts: even numbers are the worker's, odd ones the system's. Recorded dialogues stay in their files.
turns = Table(
    "turns",
    metadata,
    Column("dialogue_id", ForeignKey("dialogues.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("said_at", Double, nullable=False),
)


BUSY_SECONDS = 10  # Seconds that SQLite waits for another process's transaction. Chosen: a hundred times the longest.
THREADS = 8  # Transactions at once. Chosen: each takes a few milliseconds at most.

_ONLY_READS = "turnscore_only_reads"

Taken = ParamSpec("Taken")
Given = TypeVar("Given")


class DatabaseError(AssessmentError):
    """The database cannot be used; the message holds no password."""


class StudyDatabase:
    """One study in a database; missing tables are made."""

    def __init__(self, engine: Engine, study_id: int) -> None:
        self._engine = engine
        self._limiter = anyio.CapacityLimiter(THREADS)
        self.study_id = study_id

    async def run(
        self, work: Callable[Concatenate[Connection, Taken], Given], *taken: Taken.args, **named: Taken.kwargs
    ) -> Given:
        """Runs the work in one transaction, in a thread; an error undoes it."""
        return await anyio.to_thread.run_sync(lambda: self.run_here(work, *taken, **named), limiter=self._limiter)

    async def read(
        self, work: Callable[Concatenate[Connection, Taken], Given], *taken: Taken.args, **named: Taken.kwargs
    ) -> Given:
        """Runs work that only reads, and waits for no other transaction."""

        def read_here() -> Given:
            with self._engine.execution_options(**{_ONLY_READS: True}).begin() as connection:
                return work(connection, *taken, **named)

        return await anyio.to_thread.run_sync(read_here, limiter=self._limiter)

    def run_here(
        self, work: Callable[Concatenate[Connection, Taken], Given], *taken: Taken.args, **named: Taken.kwargs
    ) -> Given:
        """Runs the work in this thread."""
        with self._engine.begin() as connection:
            return work(connection, *taken, **named)

    async def erase(self) -> None:
        """As `erase_here`, in a thread."""
        await anyio.to_thread.run_sync(self.erase_here, limiter=self._limiter)

    def erase_here(self) -> None:
        """Takes what was deleted out of SQLite's files, whose write-ahead log else keeps it while the study is served.

        Waits for transactions under way, BUSY_SECONDS at most.
        """
        if self._engine.dialect.name != "sqlite":
            return
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("pragma wal_checkpoint(truncate)").close()
        finally:
            connection.close()

    def close(self) -> None:
        """Closes its connections."""
        self._engine.dispose()


def open_database(plan: StudyPlan) -> StudyDatabase:
    """The plan's database; DatabaseError if it cannot be opened, or holds the study with other systems or criteria."""
    engine = _make_engine(plan.database)
    try:
        metadata.create_all(engine)
        with engine.begin() as connection:
            study_id, fixed = _enter_study(connection, plan)
    except (SQLAlchemyError, OSError) as error:
        engine.dispose()
        raise DatabaseError(f"the database of {plan.name!r} cannot be used: {_name_cause(error)}") from error
    changed = sorted(key for key, value in plan.list_fixed().items() if fixed.get(key) != value)
    if changed:
        engine.dispose()
        raise DatabaseError(
            f"{changed[0]}: differ from those with which study {plan.name!r} began; give the study another name"
        )
    return StudyDatabase(engine, study_id)


def lock_study(connection: Connection, study_id: int) -> None:
    """Makes other processes wait before anything is counted; SQLite writes one at a time anyway."""
    connection.execute(select(studies.c.id).where(studies.c.id == study_id).with_for_update())


def _enter_study(connection: Connection, plan: StudyPlan) -> tuple[int, dict[str, Any]]:
    try:
        with connection.begin_nested():
            connection.execute(insert(studies).values(name=plan.name, fixed=plan.list_fixed()))
    except IntegrityError:
        pass  # it is there
    row = connection.execute(select(studies.c.id, studies.c.fixed).where(studies.c.name == plan.name)).one()
    return row.id, row.fixed


def _make_engine(database: str) -> Engine:
    if "://" not in database:
        return _make_sqlite_engine(Path(database))
    try:
        url = make_url(database)
    except ArgumentError:
        raise DatabaseError("database: must be a file or postgresql://user@host/name") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise DatabaseError(f"database: {url.drivername} is not supported; use a file or postgresql://")
    try:
        url = url.set(drivername="postgresql+pg8000", password=url.password or os.environ.get("PGPASSWORD"))
        return create_engine(url, pool_size=THREADS, pool_pre_ping=True, hide_parameters=True)
    except ModuleNotFoundError:
        raise DatabaseError(
            "Postgres needs the extra `postgres` of turnscore-assessment (in a checkout: pip install "
            "'./assessment[postgres]')"
        ) from None


def _make_sqlite_engine(path: Path) -> Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # dialogues are for the file's owner alone
    except OSError as error:
        raise DatabaseError(f"database: {path} cannot be opened ({error.strerror})") from error
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        pool_size=THREADS,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite
    for pragma in ("foreign_keys = on", "journal_mode = wal", "synchronous = full", "secure_delete = on"):
        connection.execute(f"pragma {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Locks for writing at once: a transaction that reads first and writes later would fail instead of waiting."""
    only_reads = connection.get_execution_options().get(_ONLY_READS, False)
    connection.exec_driver_sql("begin" if only_reads else "begin immediate")


def _name_cause(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {str(cause).splitlines()[0][:300] if str(cause) else 'no reason given'}"
