"""The plan of a study: the fields of STUDY.toml. Checks it, and names a wrong field; opens no database."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import StrictForm, describe_problem
from turnscore_assessment.ratings.rating_file import MOST_CRITERIA, Criterion, Name, StudyDescription

MOST_SYSTEMS = 50  # Most systems. Chosen: a worker meets a part of them.
PLAN_BYTES = 1_000_000  # Most bytes of STUDY.toml. Chosen: far above a long consent text.

# Most characters of a consent text or of the instructions. Chosen: some six printed pages.
LongText = Annotated[str, Field(max_length=20_000)]


class BadPlanError(AssessmentError):
    """STUDY.toml cannot be used; the message names the file and the field."""


class SystemPlan(StrictForm):
    """One system: an endpoint to talk with, a corpus to draw replies from, or a file of recorded dialogues."""

    name: Name
    url: str | None = None  # The endpoint's whole address, in OpenAI's chat form: `https://host/v1/chat/completions`.
    model: str | None = None
    key_variable: str | None = None  # The environment variable with the endpoint's key, sent as a bearer token.
    prompt: LongText = ""  # Sent as the `system` message before the conversation.
    # Further fields of the request, such as `temperature` or `max_tokens`.
    parameters: dict[str, Any] = Field(default_factory=dict)
    dialogues: Path | None = None  # Recorded dialogues, JSON lines with `id` and `turns`; relative to STUDY.toml.
    # Dialogues from which a degraded system draws its replies, distorted as published; relative to STUDY.toml.
    corpus: Path | None = None
    degraded: bool = False  # Whether the quality control expects it to be rated lower.

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
                raise ValueError("must be an http:// or https:// address without a user")
        return url

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        reserved = sorted({"messages", "model", "stream", "n"} & set(parameters))
        if reserved:
            raise ValueError(f"may not set {reserved[0]!r}, which the study sets itself")
        try:
            json.dumps(parameters, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("must be what JSON can hold: no dates, no nan, no inf") from None
        return parameters

    @model_validator(mode="after")
    def _check_source(self) -> "SystemPlan":
        if sum(source is not None for source in (self.url, self.dialogues, self.corpus)) != 1:
            raise ValueError("must have one of url, dialogues and corpus")
        if self.corpus is not None and not self.degraded:
            raise ValueError("corpus: such a system answers at random, so it must say degraded = true")
        return self


class ChatPlan(StrictForm):
    """How long conversations are, and what they are about."""

    # Messages that a worker writes before rating. Ten, as published.
    inputs_at_least: Annotated[int, Field(ge=1, le=100)] = 10
    inputs_at_most: Annotated[int, Field(ge=1, le=500)] = 40
    input_characters: Annotated[int, Field(ge=20, le=20_000)] = 1000
    # Topics, one of which is drawn at random and shown with each conversation; without any, workers choose.
    topics: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _check_order(self) -> "ChatPlan":
        if self.inputs_at_most < self.inputs_at_least:
            raise ValueError("inputs_at_most must not be below inputs_at_least")
        return self


class LimitPlan(StrictForm):
    """Bounds on what the study costs."""

    # Seconds for one reply of a system, the wait for room included.
    reply_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    reply_bytes: Annotated[int, Field(ge=1000, le=4_000_000)] = 200_000  # Most bytes of an endpoint's whole answer.
    reply_characters: Annotated[int, Field(ge=1, le=50_000)] = 8000
    replies_at_once: Annotated[int, Field(ge=1, le=1000)] = 8  # Most simultaneous requests to one system.
    # Most dialogues begun and not yet rated, over all workers, that were active within `idle_minutes`.
    open_dialogues: Annotated[int, Field(ge=1, le=10_000)] = 100
    # Minutes without a message after which a dialogue no longer takes up room; its worker may still continue it.
    idle_minutes: Annotated[float, Field(gt=0, le=10_000)] = 30.0


class ScoringPlan(StrictForm):
    """The turnscore service whose scores are recorded with the ratings."""

    url: str
    scorers: Annotated[tuple[Name, ...], Field(max_length=50)] = ()
    key_variable: str | None = None

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError("must be an http:// or https:// address")
        return url


class StudyPlan(StrictForm):
    name: Name
    title: Annotated[str, Field(min_length=1, max_length=200)]
    # The text that workers must agree to first; blank lines separate paragraphs.
    consent: Annotated[LongText, Field(min_length=1)]
    instructions: LongText = ""
    thanks: LongText = "Thank you. Your ratings are stored."
    contact: Annotated[str, Field(max_length=500)] = ""  # Whom workers can write to.
    # A file, relative to STUDY.toml, or `postgresql://user@host/name` (the password may come from PGPASSWORD).
    database: str = "study.sqlite3"
    quality_control_p: Annotated[float, Field(gt=0, lt=1)] = 0.05
    # How many of the systems that are not degraded; by default all. Those met least often come first.
    systems_per_worker: Annotated[int, Field(ge=1, le=MOST_SYSTEMS)] | None = None
    dialogues_per_system: Annotated[int, Field(ge=1, le=50)] = 1
    systems: Annotated[tuple[SystemPlan, ...], Field(min_length=1, max_length=MOST_SYSTEMS)]
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]
    chat: ChatPlan = ChatPlan()
    limits: LimitPlan = LimitPlan()
    turnscore: ScoringPlan | None = None

    @model_validator(mode="after")
    def _check_systems(self) -> "StudyPlan":
        names = [system.name for system in self.systems]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two systems are called {twice[0]!r}")
        if all(system.degraded for system in self.systems):
            raise ValueError("every system is degraded")
        if len({system.dialogues is None for system in self.systems}) > 1:
            raise ValueError("all systems must talk, or all be recorded: workers would see which are which")
        for criterion in self.criteria:
            if not criterion.statement:
                raise ValueError(f"criterion {criterion.name!r} has no statement for workers to read")
            if not criterion.low_end or not criterion.high_end:
                raise ValueError(f"criterion {criterion.name!r} must name both ends of its slider: low_end, high_end")
        return self

    @property
    def kind(self) -> Literal["chat", "recorded"]:
        return "chat" if self.systems[0].dialogues is None else "recorded"

    @property
    def description(self) -> StudyDescription:
        """The first line of the ratings file."""
        return StudyDescription(study=self.name, criteria=self.criteria, quality_control_p=self.quality_control_p)

    def list_fixed(self) -> dict[str, Any]:
        """The fields that may not change while a study runs: ratings before and after would not be of one study."""
        return {
            "kind": self.kind,
            "criteria": [criterion.model_dump(mode="json") for criterion in self.criteria],
            "systems": {system.name: system.degraded for system in self.systems},
        }


def read_plan(path: Path) -> StudyPlan:
    """The plan in a TOML file, its paths made relative to the file. BadPlanError names the file and the field."""
    try:
        if path.stat().st_size > PLAN_BYTES:
            raise BadPlanError(f"{path}: is larger than {PLAN_BYTES} bytes")
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadPlanError(f"{path}: cannot be read ({error})") from error
    try:
        plan = StudyPlan.model_validate(fields)
        _ = plan.description
    except ValidationError as error:
        raise BadPlanError(f"{path}: {describe_problem(error)}") from None
    folder = path.resolve().parent
    systems = tuple(
        system.model_copy(
            update={key: folder / file for key in ("dialogues", "corpus") if (file := getattr(system, key))}
        )
        for system in plan.systems
    )
    database = plan.database if "://" in plan.database else str(folder / plan.database)
    return plan.model_copy(update={"systems": systems, "database": database})
