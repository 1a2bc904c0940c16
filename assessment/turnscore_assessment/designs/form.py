"""The parts of a design (kind, criteria, items, each rater's questions), and its files: items, sheets and the key."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, model_validator
from typer import BadParameter, Option

from turnscore_assessment.command_line import SeedOption
from turnscore_assessment.data.dialogues import LabelledTurn, Spoken
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Floats, Integers
from turnscore_assessment.files import StrictForm, check_row, read_csv, read_rows, to_csv, unguard
from turnscore_assessment.ratings.rating_file import Name, Number, RatedDialogueTurn

LARGEST_MAGNITUDE = 999.0  # Upper end of the scale of magnitude estimation in Santhanam & Shaikh (INLG 2019).
LONGEST_NAME = 200
MOST_CRITERIA = 20
MOST_SYSTEMS = 200
MOST_ITEMS = 20_000
MOST_QUESTIONS = 100_000
# Most options on all sheets together. All of these bounds are chosen: many times what any published study asks.
MOST_SHOWN = 200_000
LARGEST_TUPLE = 10  # Most options of one question. Chosen: no rater puts more in order.


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


class DesignScale(StrictForm):
    """The numbers that raters may give; only the ends are named."""

    low: Number
    high: Number
    whole: bool = False
    low_end: str = ""
    high_end: str = ""


class AskedCriterion(StrictForm):
    """One question about every option; `negative` where more of it is worse."""

    name: Name
    direction: Literal["positive", "negative"] = "positive"


def read_criterion(text: str) -> AskedCriterion:
    """`NAME` or `NAME:negative`; BadParameter for anything else."""
    name, _, direction = text.partition(":")
    if not name.strip() or direction not in ("", "positive", "negative"):
        raise BadParameter(f"{text!r} is neither NAME nor NAME:negative", param_hint="--criterion")
    return AskedCriterion(name=name.strip(), direction="negative" if direction == "negative" else "positive")


class KeyedItem(StrictForm):
    # The dialogue that it belongs to; responses of several systems to the same context have the same one.
    dialogue: Name
    system: Name


class DesignItem(KeyedItem):
    """What raters judge; of a whole dialogue, the turn's response is all of it."""

    turn: LabelledTurn
    reference: bool = False  # Whether magnitude estimation measures against it.
    # The reference's worth in biased magnitude estimation: some metric's score of it.
    standard: Annotated[Number, Field(gt=0, le=LARGEST_MAGNITUDE)] | None = None

    @model_validator(mode="after")
    def _check_standard(self) -> "DesignItem":
        if self.standard is not None and not self.reference:
            raise ValueError("standard: only a reference may have one")
        return self


class DesignQuestion(StrictForm):
    """What one rater is asked on one page: options in their order on the page."""

    rater: Name
    question: Annotated[int, Field(ge=1)]
    dialogue: Name
    options: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    standard: Number | None = None  # The worth of the reference shown.


class DesignKey(StrictForm):
    """The key file: everything that raters must not see and the analysis needs."""

    form: Literal["turnscore-design-1"] = "turnscore-design-1"
    study: Name
    design: DesignKind
    criteria: Annotated[tuple[AskedCriterion, ...], Field(min_length=1, max_length=MOST_CRITERIA)]
    scale: DesignScale | None = None
    seed: int
    items: Annotated[Mapping[str, KeyedItem], Field(max_length=MOST_ITEMS)]
    questions: Annotated[tuple[DesignQuestion, ...], Field(min_length=1, max_length=MOST_QUESTIONS)]
    # How evenly systems were dealt: the fewest and the most `appearances`, `meetings`, and times `in_position`.
    balance: Mapping[str, tuple[int, int]]

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
    texts: Mapping[str, DesignItem]  # The items by blind id.
    references: Mapping[str, DesignItem]  # The references by dialogue; empty where none is shown.


@dataclass(frozen=True, kw_only=True)
class DesignSpec:
    """What a user asks for, as options of the command line."""

    kind: Annotated[DesignKind, Option("--design", help="How raters are asked.")]
    criteria: Annotated[
        list[AskedCriterion],
        Option(
            "--criterion",
            parser=read_criterion,
            metavar="TEXT",
            help="A question about every option, as `fun` or `dull:negative`; repeatable.",
        ),
    ]
    raters: Annotated[int, Option(min=1, help="Sheets to make.")]
    per_rater: Annotated[int | None, Option(min=1, help="Dialogues per rater; else all.")] = None
    tuple_size: Annotated[int, Option(min=2, max=LARGEST_TUPLE, help="Options of a question of choices.")] = 4
    # The defaults of `points` and `standard` are those of Santhanam & Shaikh (INLG 2019).
    points: Annotated[int, Option(min=2, max=100, help="Of a Likert scale.")] = 6
    standard: Annotated[float, Option(min=1, max=999, help="Rank-based magnitude: the reference's worth.")] = 100.0
    study: Annotated[str, Option(help="The study's name.")] = "study"
    seed: SeedOption = 0


_TURNS = TypeAdapter(Annotated[tuple[RatedDialogueTurn, ...], Field(max_length=2000)])
_RESPONSE = TypeAdapter(Annotated[str, Field(min_length=1, max_length=100_000)])


def read_items(path: Path) -> list[DesignItem]:
    """The items in the file's order; BadFileError names the file, the line and the field."""
    items: list[DesignItem] = []
    for number, record in read_rows(path):
        if len(items) == MOST_ITEMS:
            raise BadFileError(path, number, f"there are more than {MOST_ITEMS:,} items")
        turn = _read_turn(path, number, record)
        items.append(check_row(DesignItem.model_validate, path, number, {"turn": turn, **record}))
    if not items:
        raise BadFileError(path, 0, "has no item")
    return items


def _read_turn(path: Path, number: int, record: dict[str, Any]) -> LabelledTurn:
    """Takes out of a line one system's `response` to the `context`, or a whole dialogue (`turns`)."""

    def read(name: str) -> tuple[Spoken, ...]:
        turns = check_row(_TURNS.validate_python, path, number, record.pop(name, ()), name)
        return tuple((turn.speaker, turn.text) for turn in turns)

    context, turns, response = read("context"), read("turns"), record.pop("response", None)
    if (response is None) == (not turns):
        raise BadFileError(path, number, "must have either `response` or `turns`")
    if response is None:
        return LabelledTurn(context=context, response=_say_turns(turns))
    return LabelledTurn(
        context=context, response=check_row(_RESPONSE.validate_python, path, number, response, "response")
    )


# Columns of a sheet, a row per option and criterion; raters fill the last one.
COLUMNS = (
    *("study", "rater", "question", "criterion", "position", "item"),
    *("context", "reference", "standard", "response", "how_to_answer", "answer"),
)

HOW_TO_ANSWER = {
    DesignKind.LIKERT: "a whole number on the scale",
    DesignKind.CONTINUOUS: "a number on the scale",
    DesignKind.RANK_BASED_MAGNITUDE: "a number: how good it is where the reference is worth the standard",
    DesignKind.BIASED_MAGNITUDE: "a number: how good it is where the reference is worth the standard",
    DesignKind.BEST_WORST: "`best` for the best option, `worst` for the worst, nothing for the others",
    DesignKind.RANKING: "its rank: 1 for the best option, no two the same",
    DesignKind.PAIRWISE: "`better` for the better option; `tie` for both if neither is",
}


def write_design(folder: Path, design: Design) -> None:
    """Writes `key.json` and, under `sheets/`, a CSV per rater. Same input, same bytes."""
    sheets = folder / "sheets"
    sheets.mkdir(parents=True, exist_ok=True)
    written = {folder / "key.json": design.key.model_dump_json(indent=1, exclude_none=True) + "\n"}
    for rater in sorted({question.rater for question in design.key.questions}):
        questions = [question for question in design.key.questions if question.rater == rater]
        written[sheets / f"{rater}.csv"] = _write_sheet(design, questions)
    for path, content in written.items():
        path.write_text(content, encoding="utf-8", newline="")


def _write_sheet(design: Design, questions: Sequence[DesignQuestion]) -> str:
    """The sheet does not show whose an option is."""
    rows = []
    key, scale = design.key, design.key.scale
    how = HOW_TO_ANSWER[key.design] + (f", from {scale.low:g} to {scale.high:g}" if scale is not None else "")
    for question in questions:
        reference = design.references.get(question.dialogue)
        for criterion in key.criteria:
            for position, option in enumerate(question.options, start=1):
                item = design.texts[option]
                row = [key.study, question.rater, question.question, criterion.name, position, option]
                said = reference.turn.response if reference else ""
                shown = [_say_turns(item.turn.context), said, question.standard, item.turn.response]
                rows.append([*row, *shown, how, None])
    return to_csv(COLUMNS, rows)


def _say_turns(turns: Iterable[Spoken]) -> str:
    return "\n".join(f"{speaker}: {text}" for speaker, text in turns)


BEST, MIDDLE, WORST = 1.0, 2.0, 3.0  # Ranks of best-worst answers: all options between share one.
TIE = 1.5


class BadAnswerError(ValueError):
    """An answer has a wrong form; the message begins with the rest of the field's name."""


def read_answer(key: DesignKey, question: DesignQuestion, cells: Mapping[str, str]) -> dict[str, float]:
    """The number, or the rank of a choice, by option; empty for an unanswered question. Raises BadAnswerError."""
    for option in cells:
        if option not in question.options:
            raise BadAnswerError(f".{option}: is not an option of this question")
    filled = {option: cell.lower() for option, cell in cells.items() if cell}
    if not filled:
        return {}
    if key.design is DesignKind.PAIRWISE:
        return _read_pairwise(question, filled)
    if key.design is DesignKind.BEST_WORST:
        return _read_best_worst(question, filled)
    scale = key.scale or DesignScale(low=1, high=len(question.options), whole=True)
    numbers = {option: _read_number(option, cell, scale) for option, cell in filled.items()}
    if key.design is DesignKind.RANKING and sorted(numbers.values()) != list(range(1, len(question.options) + 1)):
        raise BadAnswerError(f": must give each rank from 1 to {len(question.options)} once")
    return numbers


def _find_said(filled: Mapping[str, str], *known: str) -> dict[str, list[str]]:
    """The options of which each word is said."""
    for option, word in filled.items():
        if word not in known:
            raise BadAnswerError(f".{option}: must be `{known[0]}` or `{known[1]}`, not {word[:40]!r}")
    return {word: [option for option, said in filled.items() if said == word] for word in known}


def _read_number(option: str, cell: str, scale: DesignScale) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise BadAnswerError(f".{option}: must be a number, not {cell[:40]!r}") from None
    if not scale.low <= value <= scale.high:
        raise BadAnswerError(f".{option}: {cell[:20]} is not within {scale.low:g} and {scale.high:g}")
    if scale.whole and value != int(value):
        raise BadAnswerError(f".{option}: must be a whole number, not {value:g}")
    return value


def _read_best_worst(question: DesignQuestion, filled: Mapping[str, str]) -> dict[str, float]:
    said = _find_said(filled, "best", "worst")
    for word, options in said.items():
        if len(options) != 1:
            raise BadAnswerError(f": says `{word}` {'more than once' if options else 'of no option'}")
    ranks = {said["best"][0]: BEST, said["worst"][0]: WORST}
    return {option: ranks.get(option, MIDDLE) for option in question.options}


def _read_pairwise(question: DesignQuestion, filled: Mapping[str, str]) -> dict[str, float]:
    better = _find_said(filled, "better", "tie")["better"]
    if better and len(filled) > 1:
        raise BadAnswerError(": says `better` or `tie` more than once")
    return {option: TIE if not better else 1.0 if option in better else 2.0 for option in question.options}


CSV_NEEDED = ("rater", "question", "criterion", "item", "answer")


LONGEST_NUMBER = 9  # Most digits of a question's number. Chosen: far above the most questions.

# Rater, question, criterion, the cells by option, line.
Given = tuple[str, int, str, Mapping[str, str], int]


@dataclass(frozen=True)
class OptionTable:
    """One criterion's answers: a row per option that a rater answered about."""

    systems: Sequence[str]
    rater: Integers
    dialogue: Integers
    system: Integers
    item: Integers
    question: Integers  # Numbers the questions that a rater answered.
    answer: Floats  # The given number; of choices the rank, 1 for the best, ties shared.
    standard: Floats  # The reference's worth; NaN where none was shown.
    unanswered: int


def read_key(path: Path) -> DesignKey:
    """The key file; BadFileError names the field that is wrong."""
    return check_row(DesignKey.model_validate_json, path, 0, path.read_bytes())


def read_answers(key: DesignKey, paths: Sequence[Path]) -> dict[str, OptionTable]:
    """Each criterion's answers in all sheets together. BadFileError names the file, the line and the field."""
    questions = {(question.rater, question.question): question for question in key.questions}
    found: dict[str, dict[tuple[str, int], dict[str, float]]] = {criterion.name: {} for criterion in key.criteria}
    for path in paths:
        for rater, number, criterion, cells, line in _read_sheet(path):
            if criterion not in found:
                raise BadFileError(path, line, f"criterion: {criterion!r} is not one of {', '.join(found)}")
            question = questions.get((rater, number))
            if question is None:
                raise BadFileError(path, line, f"question: {rater!r} was not asked a number {number}")
            try:
                answer = read_answer(key, question, cells)
            except BadAnswerError as error:
                raise BadFileError(path, line, f"{rater}'s question {number}, {criterion}{error}") from None
            if not answer:
                continue
            if (rater, number) in found[criterion]:
                raise BadFileError(path, line, f"{criterion}: {rater}'s question {number} was already answered")
            found[criterion][rater, number] = answer
    return {criterion: build_option_table(key, answers) for criterion, answers in found.items()}


def _read_sheet(path: Path) -> Iterator[Given]:
    """The cells of a question and criterion together; with `;` between cells a decimal may have a comma."""
    groups: dict[tuple[str, int, str], tuple[dict[str, str], int]] = {}
    table = read_csv(path, CSV_NEEDED, separators=",;")
    for line, row in table.rows:
        number = str(row["question"] or "").strip()
        if not number.isdecimal() or len(number) > LONGEST_NUMBER:
            raise BadFileError(path, line, "question: must be a whole number")
        rater, criterion, item = (unguard(str(row[name] or "").strip()) for name in ("rater", "criterion", "item"))
        cells, _ = groups.setdefault((rater, int(number), criterion), ({}, line))
        cell = str(row["answer"] or "").strip()
        cells[item] = cell.replace(",", ".") if table.separator == ";" else cell
    return ((*place, cells, line) for place, (cells, line) in groups.items())


def build_option_table(key: DesignKey, answers: Mapping[tuple[str, int], Mapping[str, float]]) -> OptionTable:
    """`answers` are by rater and question, then by option, as `read_answer` returns them."""
    questions = {(question.rater, question.question): question for question in key.questions}
    raters = _number({each[0] for each in questions})
    dialogues = _number({each.dialogue for each in key.items.values()})
    systems, items = _number({each.system for each in key.items.values()}), _number(set(key.items))
    rows: list[tuple[float, ...]] = []
    for number, (place, given) in enumerate(sorted(answers.items())):
        question = questions[place]
        standard = np.nan if question.standard is None else question.standard
        for option in question.options:  # in the key's order, so that the last digits do not depend on the sheet's
            if option in given:
                item = key.items[option]
                who = raters[question.rater], dialogues[item.dialogue], systems[item.system]
                rows.append((*who, items[option], number, given[option], standard))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 7).T
    rater, dialogue, system, item_of, question_of = columns[:5].astype(np.intp)
    asked = rater, dialogue, system, item_of, question_of
    return OptionTable(list(systems), *asked, columns[5], columns[6], len(key.questions) - len(answers))


def _number(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}
