"""The tables of a study's database, in SQLite and in Postgres alike. Times are seconds since 1970, in UTC."""

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("fixed", JSON, nullable=False),
)
"""One row per study; `fixed` holds what its plan may not change: kind, criteria, systems."""

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
"""One row per link. `rater` is the made-up name in exports, which does not follow from `code`; `consent_hash` is the
SHA-256 of the agreed text. There is no name, no address, no account and no IP address."""

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
"""One row for each dialogue that a worker is to rate, made when the worker agrees. `asked_at` is set while a reply is
under way; `failures` counts failed replies in a row."""

turns = Table(
    "turns",
    metadata,
    Column("dialogue_id", ForeignKey("dialogues.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("said_at", Double, nullable=False),
)
"""The texts: even numbers are the worker's, odd ones the system's. Recorded dialogues stay in their files."""
