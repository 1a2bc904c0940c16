"""The parts of a design: kind, criteria, judged items, and each rater's questions. Reads no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment.ratings.form import Name, Number, SpokenTurn

LARGEST_MAGNITUDE = 999.0
"""Upper end of the scale of magnitude estimation in Santhanam & Shaikh (INLG 2019)."""
STANDARD = 100.0
"""Worth of the reference in rank-based magnitude estimation, ibid."""
POINTS = 6
"""Points of a Likert scale, ibid."""
LONGEST_NAME = 200
MOST_CRITERIA = 20
MOST_SYSTEMS = 200
MOST_ITEMS = 20_000
MOST_QUESTIONS = 100_000
MOST_SHOWN = 200_000
"""Most options on all sheets together. All of these bounds are chosen: many times what any published study asks."""
LARGEST_TUPLE = 10
"""Most options of one question. Chosen: nobody puts more in order."""


class DesignKind(StrEnum):
    """How raters are asked."""

    LIKERT = "likert"
    CONTINUOUS = "continuous"
    RANK_BASED_MAGNITUDE = "rank-based-magnitude"
    BIASED_MAGNITUDE = "biased-magnitude"
    BEST_WORST = "best-worst"
    RANKING = "ranking"
    PAIRWISE = "pairwise"

    @property
    def is_magnitude(self) -> bool:
        """Whether a number is given relative to a reference that is shown."""
        return self in (DesignKind.RANK_BASED_MAGNITUDE, DesignKind.BIASED_MAGNITUDE)

    @property
    def is_choice(self) -> bool:
        """Whether options are chosen or ordered, and no number is given."""
        return self in (DesignKind.BEST_WORST, DesignKind.RANKING, DesignKind.PAIRWISE)


class Scale(BaseModel):
    """The numbers that raters may give; only the ends are named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: Number
    high: Number
    whole: bool = False
    low_end: str = ""
    high_end: str = ""


class AskedCriterion(BaseModel):
    """One question about every option; `negative` where more of it is worse."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    direction: Literal["positive", "negative"] = "positive"


class Item(BaseModel):
    """A line of an items file: one system's `response` to the `context`, or a whole dialogue (`turns`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: Name
    """The dialogue that it belongs to; responses of several systems to the same context have the same one."""
    system: Name
    reference: bool = False
    """Whether magnitude estimation measures against it."""
    standard: Annotated[Number, Field(gt=0, le=LARGEST_MAGNITUDE)] | None = None
    """The reference's worth in biased magnitude estimation: some metric's score of it."""
    context: Annotated[tuple[SpokenTurn, ...], Field(max_length=2000)] = ()
    response: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    turns: Annotated[tuple[SpokenTurn, ...], Field(max_length=2000)] = ()

    @model_validator(mode="after")
    def _check_content(self) -> "Item":
        if (self.response is None) == (not self.turns):
            raise ValueError("must have either `response` or `turns`")
        if self.standard is not None and not self.reference:
            raise ValueError("standard: only a reference may have one")
        return self


class KeyedItem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: Name
    system: Name


class Question(BaseModel):
    """What one rater is asked on one page: options in their order on the page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rater: Name
    question: Annotated[int, Field(ge=1)]
    dialogue: Name
    options: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    standard: Number | None = None
    """The worth of the reference shown."""


class DesignKey(BaseModel):
    """The key file: everything that raters must not see and the analysis needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal["turnscore-design-1"] = "turnscore-design-1"
    study: Name
    design: DesignKind
    criteria: Annotated[tuple[AskedCriterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]
    scale: Scale | None = None
    seed: int
    items: Annotated[Mapping[str, KeyedItem], Field(max_length=MOST_ITEMS)]
    questions: Annotated[tuple[Question, ...], Field(min_length=1, max_length=MOST_QUESTIONS)]
    balance: Mapping[str, tuple[int, int]]
    """How evenly systems were dealt: the fewest and the most `appearances`, `meetings`, and times `in_position`."""

    @model_validator(mode="after")
    def _check_questions(self) -> "DesignKey":
        places = {(question.rater, question.question) for question in self.questions}
        if len(places) < len(self.questions):
            raise ValueError("questions: a rater has two of the same number")
        for question in self.questions:
            if any(self.items.get(option) is None for option in question.options):
                place = f"{question.rater}'s number {question.question}"
                raise ValueError(f"questions: {place} has an option without an item")
        return self


@dataclass(frozen=True, kw_only=True)
class Design:
    """A key with the texts that its sheets show."""

    key: DesignKey
    texts: Mapping[str, Item]
    """The items by blind id."""
    references: Mapping[str, Item]
    """The references by dialogue; empty where none is shown."""


@dataclass(frozen=True, kw_only=True)
class DesignWish:
    """What a user asks for."""

    kind: DesignKind
    study: str
    criteria: Sequence[AskedCriterion]
    raters: int
    per_rater: int | None = None
    """Dialogues per rater; None for all."""
    tuple_size: int = 4
    points: int = POINTS
    standard: float = STANDARD
    seed: int = 0
