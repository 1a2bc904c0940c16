"""The form of a ratings file: what its first line and every other may hold. Checks one line at a time; reads no file.

The first line describes the study, every other line is one rated dialogue. docs/assessment.md shows both.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False)]

MOST_CRITERIA = 50
"""Most criteria. Chosen: three times what any published study asks."""
MOST_TURNS = 2000
"""Most turns of one dialogue. Chosen: a hundred times a chat of ten inputs."""


class Criterion(BaseModel):
    """One question that raters answer with a number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    direction: Literal["positive", "negative"] = "positive"
    """`negative` where a higher rating is worse, as in "the chatbot was repetitive"; such ratings are reversed."""
    low: Number = 0.0
    high: Number = 100.0
    in_quality_control: bool | None = None
    """Whether the quality control uses it; by default it uses the positive ones."""
    statement: str = ""
    """What raters read."""
    low_end: str = ""
    high_end: str = ""

    @model_validator(mode="after")
    def _check_range(self) -> "Criterion":
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        return self

    @property
    def is_controlling(self) -> bool:
        """Whether the quality control uses it."""
        return self.direction == "positive" if self.in_quality_control is None else self.in_quality_control


class StudyDescription(BaseModel):
    """The first line of a ratings file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Name
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]
    quality_control_p: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """p below which a worker's ratings of the degraded system count as lower. The published value."""

    @model_validator(mode="after")
    def _check_names(self) -> "StudyDescription":
        names = [criterion.name for criterion in self.criteria]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two criteria are called {twice[0]!r}")
        return self

    @property
    def names(self) -> list[str]:
        return [criterion.name for criterion in self.criteria]


class SpokenTurn(BaseModel):
    """One turn of a rated dialogue."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    speaker: Literal["user", "system"]
    text: Annotated[str, Field(max_length=100_000)]


class RatedDialogue(BaseModel):
    """Every other line of a ratings file: one worker's ratings of one dialogue, as given, nothing reversed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Name | None = None
    worker: Name
    hit: Name
    """The task that it belongs to; a worker's dialogues of one HIT are one assignment."""
    position: Annotated[int, Field(ge=0)] | None = None
    """Its place in the HIT, from 0."""
    system: Name
    degraded: bool = False
    """Whether the system is the degraded one, which only the quality control and the worker's statistics use."""
    ratings: Mapping[str, Number]
    dialogue: Name | None = None
    """The name of a recorded dialogue that several workers judge."""
    submitted_at: AwareDatetime | None = None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The duration of the dialogue and its rating."""
    topic: str | None = None
    scores: Mapping[str, Number] = Field(default_factory=dict)
    """Scorers' scores of the dialogue, unseen by the worker."""
    turns: Annotated[tuple[SpokenTurn, ...], Field(max_length=MOST_TURNS)] = ()
