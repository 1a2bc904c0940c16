"""The parts of a design (kind, criteria, items, each rater's questions), and its files: items, sheets and the key."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import check_row, read_rows, to_csv
from turnscore_assessment.ratings.rating_file import Name, Number, RatedDialogueTurn

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


class DesignScale(BaseModel):
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


class DesignItem(BaseModel):
    """A line of an items file: one system's `response` to the `context`, or a whole dialogue (`turns`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: Name
    """The dialogue that it belongs to; responses of several systems to the same context have the same one."""
    system: Name
    reference: bool = False
    """Whether magnitude estimation measures against it."""
    standard: Annotated[Number, Field(gt=0, le=LARGEST_MAGNITUDE)] | None = None
    """The reference's worth in biased magnitude estimation: some metric's score of it."""
    context: Annotated[tuple[RatedDialogueTurn, ...], Field(max_length=2000)] = ()
    response: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    turns: Annotated[tuple[RatedDialogueTurn, ...], Field(max_length=2000)] = ()

    @model_validator(mode="after")
    def _check_content(self) -> "DesignItem":
        if (self.response is None) == (not self.turns):
            raise ValueError("must have either `response` or `turns`")
        if self.standard is not None and not self.reference:
            raise ValueError("standard: only a reference may have one")
        return self


class KeyedItem(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    dialogue: Name
    system: Name


class DesignQuestion(BaseModel):
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
    scale: DesignScale | None = None
    seed: int
    items: Annotated[Mapping[str, KeyedItem], Field(max_length=MOST_ITEMS)]
    questions: Annotated[tuple[DesignQuestion, ...], Field(min_length=1, max_length=MOST_QUESTIONS)]
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
    texts: Mapping[str, DesignItem]
    """The items by blind id."""
    references: Mapping[str, DesignItem]
    """The references by dialogue; empty where none is shown."""


@dataclass(frozen=True, kw_only=True)
class DesignSpec:
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


def read_items(path: Path) -> list[DesignItem]:
    """The items in the file's order; BadFileError names the file, the line and the field."""
    items: list[DesignItem] = []
    for number, record in read_rows(path):
        if len(items) == MOST_ITEMS:
            raise BadFileError(path, number, f"there are more than {MOST_ITEMS:,} items")
        items.append(check_row(DesignItem.model_validate, path, number, record))
    if not items:
        raise BadFileError(path, 0, "has no item")
    return items


COLUMNS = (
    *("study", "rater", "question", "criterion", "position", "item"),
    *("context", "reference", "standard", "response", "answer"),
)
"""Columns of a CSV sheet, a row per option and criterion; raters fill the last one."""

HOW_TO_ANSWER = {
    DesignKind.LIKERT: "a whole number on the scale",
    DesignKind.CONTINUOUS: "a number on the scale",
    DesignKind.RANK_BASED_MAGNITUDE: "a number: how good it is where the reference is worth the standard",
    DesignKind.BIASED_MAGNITUDE: "a number: how good it is where the reference is worth the standard",
    DesignKind.BEST_WORST: "`best` for the best option, `worst` for the worst, nothing for the others",
    DesignKind.RANKING: "its rank: 1 for the best option, no two the same",
    DesignKind.PAIRWISE: "`better` for the better option; `tie` for both if neither is",
}


def write_design(folder: Path, design: Design) -> list[Path]:
    """Writes `key.json` and, under `sheets/`, two files per rater; returns the paths. Same input, same bytes."""
    sheets = folder / "sheets"
    sheets.mkdir(parents=True, exist_ok=True)
    written = {folder / "key.json": design.key.model_dump_json(indent=1, exclude_none=True) + "\n"}
    for rater in sorted({question.rater for question in design.key.questions}):
        questions = [question for question in design.key.questions if question.rater == rater]
        written[sheets / f"{rater}.jsonl"] = "".join(
            json.dumps(make_line(design, question), ensure_ascii=False) + "\n" for question in questions
        )
        written[sheets / f"{rater}.csv"] = _write_sheet_csv(design, questions)
    for path, content in written.items():
        path.write_text(content, encoding="utf-8", newline="")
    return list(written)


def make_line(design: Design, question: DesignQuestion) -> dict[str, Any]:
    """One page of a JSON-lines sheet with empty `answers`, which does not show whose an option is."""
    key = design.key
    first = design.texts[question.options[0]]
    line: dict[str, Any] = {"study": key.study, "rater": question.rater, "question": question.question}
    line["how_to_answer"] = HOW_TO_ANSWER[key.design]
    if key.scale is not None:
        line["scale"] = key.scale.model_dump(exclude_defaults=True)
    line["context"] = [turn.model_dump() for turn in first.context]
    reference = design.references.get(question.dialogue)
    if reference is not None:
        line["reference"] = {**_show(reference), "standard": question.standard}
    line["options"] = [{"item": option, **_show(design.texts[option])} for option in question.options]
    line["answers"] = {criterion.name: make_empty_answer(key, question) for criterion in key.criteria}
    return line


def make_empty_answer(key: DesignKey, question: DesignQuestion) -> dict[str, None]:
    """The empty answer that a rater fills for one criterion."""
    if key.design is DesignKind.BEST_WORST:
        return {"best": None, "worst": None}
    if key.design is DesignKind.PAIRWISE:
        return {"better": None}
    return dict.fromkeys(question.options)


def _show(item: DesignItem) -> dict[str, Any]:
    if item.response is not None:
        return {"response": item.response}
    return {"turns": [turn.model_dump() for turn in item.turns]}


def _write_sheet_csv(design: Design, questions: Sequence[DesignQuestion]) -> str:
    rows = []
    for question in questions:
        reference = design.references.get(question.dialogue)
        for criterion in design.key.criteria:
            for position, option in enumerate(question.options, start=1):
                item = design.texts[option]
                row = [design.key.study, question.rater, question.question, criterion.name, position, option]
                rows.append([*row, _say_turns(item.context), _say(reference), question.standard, _say(item), None])
    return to_csv(COLUMNS, rows)


def _say(item: DesignItem | None) -> str:
    if item is None:
        return ""
    return item.response if item.response is not None else _say_turns(item.turns)


def _say_turns(turns: Iterable[RatedDialogueTurn]) -> str:
    return "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns)
