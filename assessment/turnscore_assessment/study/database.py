"""The database of a study, SQLite or Postgres: its tables, and one transaction for each piece of work, in threads.

Times are seconds since 1970, in UTC.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.study.plan import StudyPlan

metadata = sa.MetaData()

# One row per study; `fixed` holds what its plan may not change: kind, criteria, systems.
studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("fixed", sa.JSON, nullable=False),
)

# One row per link. `rater` is the made-up name in exports, which does not follow from `code`; `consent_hash` is the
# SHA-256 of the agreed text. There is no name, no address, no account and no IP address.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("code", sa.String(40), nullable=False, unique=True),
    sa.Column("secret_hash", sa.String(64), nullable=False),
    sa.Column("rater", sa.String(40), nullable=False, unique=True),
    sa.Column("invited_at", sa.Double, nullable=False),
    sa.Column("consented_at", sa.Double),
    sa.Column("consent_hash", sa.String(64)),
    sa.Column("finished_at", sa.Double),
    sa.Column("withdrawn_at", sa.Double),
)

# One row for each dialogue that a worker is to rate, made when the worker agrees. `asked_at` is set while a reply is
# under way; `failures` counts failed replies in a row.
dialogues = sa.Table(
    "dialogues",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("worker_id", sa.ForeignKey("workers.id"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("system", sa.String(200), nullable=False),
    sa.Column("degraded", sa.Boolean, nullable=False),
    sa.Column("recorded", sa.String(200)),
    sa.Column("topic", sa.Text),
    sa.Column("state", sa.String(10), nullable=False, server_default="waiting"),
    sa.Column("opened_at", sa.Double),
    sa.Column("touched_at", sa.Double),
    sa.Column("asked_at", sa.Double),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("rated_at", sa.Double),
    sa.Column("ratings", sa.JSON(none_as_null=True)),
    sa.Column("scores", sa.JSON(none_as_null=True)),
    sa.UniqueConstraint("worker_id", "position"),
    sa.CheckConstraint("state in ('waiting', 'open', 'rated', 'given_up')", name="known_state"),
    sa.Index("dialogues_by_state", "state"),
)

# The texts: even numbers are the worker's, odd ones the system's. Recorded dialogues stay in their files.
turns = sa.Table(
    "turns",
    metadata,
    sa.Column("dialogue_id", sa.ForeignKey("dialogues.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("said_at", sa.Double, nullable=False),
)


BUSY_SECONDS = 10  # Seconds that SQLite waits for another process's transaction. Chosen: a hundred times the longest.
THREADS = 8  # Transactions at once. Chosen: each takes a few milliseconds at most.

_ONLY_READS = "turnscore_only_reads"

Taken = ParamSpec("Taken")
Given = TypeVar("Given")
Work = Callable[Concatenate[sa.Connection, Taken], Given]


class DatabaseError(AssessmentError):
    """The database cannot be used; the message holds no password."""


class StudyDatabase:
    """One study in a database; missing tables are made."""

    def __init__(self, engine: sa.Engine, study_id: int) -> None:
        self._engine = engine
        self._limiter = anyio.CapacityLimiter(THREADS)
        self.study_id = study_id

    async def run(self, work: Work[Taken, Given], *taken: Taken.args, **named: Taken.kwargs) -> Given:
        """Runs the work in one transaction, in a thread; an error undoes it."""
        return await anyio.to_thread.run_sync(lambda: self.run_here(work, *taken, **named), limiter=self._limiter)

    async def read(self, work: Work[Taken, Given], *taken: Taken.args, **named: Taken.kwargs) -> Given:
        """Runs work that only reads, and waits for no other transaction."""

        def read_here() -> Given:
            with self._engine.execution_options(**{_ONLY_READS: True}).begin() as connection:
                return work(connection, *taken, **named)

        return await anyio.to_thread.run_sync(read_here, limiter=self._limiter)

    def run_here(self, work: Work[Taken, Given], *taken: Taken.args, **named: Taken.kwargs) -> Given:
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
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(studies).values(name=plan.name, fixed=plan.list_fixed()))
            except IntegrityError:
                pass  # it is there
            row = connection.execute(sa.select(studies.c.id, studies.c.fixed).where(studies.c.name == plan.name)).one()
            study_id, fixed = row.id, row.fixed
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


def lock_study(connection: sa.Connection, study_id: int) -> None:
    """Makes other processes wait before anything is counted; SQLite writes one at a time anyway."""
    connection.execute(sa.select(studies.c.id).where(studies.c.id == study_id).with_for_update())


def _make_engine(database: str) -> sa.Engine:
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
        return sa.create_engine(url, pool_size=THREADS, pool_pre_ping=True, hide_parameters=True)
    except ModuleNotFoundError:
        raise DatabaseError(
            "Postgres needs the extra `postgres` of turnscore-assessment (in a checkout: pip install "
            "'./assessment[postgres]')"
        ) from None


def _make_sqlite_engine(path: Path) -> sa.Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # dialogues are for the file's owner alone
    except OSError as error:
        raise DatabaseError(f"database: {path} cannot be opened ({error.strerror})") from error
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        pool_size=THREADS,
        hide_parameters=True,
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite
    for pragma in ("foreign_keys = on", "journal_mode = wal", "synchronous = full", "secure_delete = on"):
        connection.execute(f"pragma {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Locks for writing at once: a transaction that reads first and writes later would fail instead of waiting."""
    only_reads = connection.get_execution_options().get(_ONLY_READS, False)
    connection.exec_driver_sql("begin" if only_reads else "begin immediate")


def _name_cause(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {str(cause).splitlines()[0][:300] if str(cause) else 'no reason given'}"
