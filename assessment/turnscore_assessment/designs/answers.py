"""Filled sheets: reads JSON lines and CSV against the key. Errors name the line and the field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from turnscore_assessment.designs.form import DesignKey, DesignKind, DesignQuestion, DesignScale
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Floats, Integers
from turnscore_assessment.files import check_row, read_csv, read_rows, unguard

BEST, MIDDLE, WORST = 1.0, 2.0, 3.0
"""Ranks of best-worst answers: all options between share one."""
TIE = 1.5


class BadAnswerError(ValueError):
    """An answer has a wrong form; the message begins with the rest of the field's name."""


def read_answer(key: DesignKey, question: DesignQuestion, given: Mapping[str, Any]) -> dict[str, float]:
    """The number, or the rank of a choice, by option; empty for an unanswered question. Raises BadAnswerError."""
    if key.design is DesignKind.BEST_WORST:
        return _read_best_worst(question, given)
    if key.design is DesignKind.PAIRWISE:
        return _read_pairwise(question, given)
    unknown = [option for option in given if option not in question.options]
    if unknown:
        raise BadAnswerError(f".{unknown[0]}: is not an option of this question")
    answered = {option: value for option, value in given.items() if value is not None}
    if key.design is DesignKind.RANKING:
        return _read_ranking(question, answered)
    assert key.scale is not None
    return {option: _read_number(option, value, key.scale) for option, value in answered.items()}


def read_cells(key: DesignKey, cells: Mapping[str, str]) -> dict[str, Any]:
    """Converts the cells of a CSV sheet, one per option, to the form of a JSON-lines sheet. Raises BadAnswerError."""
    filled = {option: cell.lower() for option, cell in cells.items() if cell}
    if key.design is DesignKind.PAIRWISE:
        _refuse_words(filled, ("better", "tie"))
        better = [option for option, word in filled.items() if word == "better"]
        if len(better) > 1 or (better and len(filled) > 1):
            raise BadAnswerError(": says `better` or `tie` more than once")
        return {"better": better[0] if better else "tie" if filled else None}
    if key.design is DesignKind.BEST_WORST:
        _refuse_words(filled, ("best", "worst"))
        found: dict[str, str | None] = {"best": None, "worst": None}
        for option, word in filled.items():
            if found[word] is not None:
                raise BadAnswerError(f": says `{word}` more than once")
            found[word] = option
        return found
    return {option: _parse(option, cell) for option, cell in filled.items()}


def _refuse_words(filled: Mapping[str, str], known: tuple[str, str]) -> None:
    for option, word in filled.items():
        if word not in known:
            raise BadAnswerError(f".{option}: must be `{known[0]}` or `{known[1]}`, not {word[:40]!r}")


def _parse(option: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise BadAnswerError(f".{option}: must be a number, not {cell[:40]!r}") from None


def _read_number(option: str, value: object, scale: DesignScale) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadAnswerError(f".{option}: must be a number")
    if not scale.low <= value <= scale.high:
        raise BadAnswerError(f".{option}: {str(value)[:20]} is not within {scale.low:g} and {scale.high:g}")
    if scale.whole and value != int(value):
        raise BadAnswerError(f".{option}: must be a whole number, not {value:g}")
    return float(value)


def _read_ranking(question: DesignQuestion, answered: Mapping[str, Any]) -> dict[str, float]:
    ranks = DesignScale(low=1, high=len(question.options), whole=True)
    read = {option: _read_number(option, value, ranks) for option, value in answered.items()}
    if read and sorted(read.values()) != list(range(1, len(question.options) + 1)):
        raise BadAnswerError(f": must give each rank from 1 to {len(question.options)} once")
    return read


def _read_best_worst(question: DesignQuestion, given: Mapping[str, Any]) -> dict[str, float]:
    best, worst = given.get("best"), given.get("worst")
    if best is None and worst is None:
        return {}
    for name, option in (("best", best), ("worst", worst)):
        if option not in question.options:
            raise BadAnswerError(f".{name}: must name an option of this question")
    if best == worst:
        raise BadAnswerError(".worst: must differ from the best one")
    return {option: BEST if option == best else WORST if option == worst else MIDDLE for option in question.options}


def _read_pairwise(question: DesignQuestion, given: Mapping[str, Any]) -> dict[str, float]:
    better = given.get("better")
    if better is None:
        return {}
    if better == "tie":
        return dict.fromkeys(question.options, TIE)
    if better not in question.options:
        raise BadAnswerError(".better: must name an option of this question, or `tie`")
    return {option: 1.0 if option == better else 2.0 for option in question.options}


CSV_NEEDED = ("rater", "question", "criterion", "item", "answer")


class _SheetLine(BaseModel):
    model_config = ConfigDict(strict=True)

    rater: str
    question: int
    answers: dict[str, dict[str, Any] | None]


LONGEST_NUMBER = 9
"""Most digits of a question's number. Chosen: far above the most questions."""

Given = tuple[str, int, str, Mapping[str, Any], int]
"""Rater, question, criterion, the answer in the form of a JSON-lines sheet, line."""


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """One criterion's answers: a row per option that a rater answered about."""

    systems: Sequence[str]
    rater: Integers
    dialogue: Integers
    system: Integers
    item: Integers
    question: Integers
    """Numbers the questions that a rater answered."""
    answer: Floats
    """The given number; of choices the rank, 1 for the best, ties shared."""
    standard: Floats
    """The reference's worth; NaN where none was shown."""
    unanswered: int
    """How many questions have no answer."""


def read_key(path: Path) -> DesignKey:
    """The key file; BadFileError names the field that is wrong."""
    return check_row(DesignKey.model_validate_json, path, 0, path.read_bytes())


def read_answers(key: DesignKey, paths: Sequence[Path]) -> dict[str, OptionTable]:
    """Each criterion's answers in all sheets together. BadFileError names the file, the line and the field."""
    questions = {(question.rater, question.question): question for question in key.questions}
    found: dict[str, dict[tuple[str, int], dict[str, float]]] = {criterion.name: {} for criterion in key.criteria}
    for path in paths:
        for rater, number, criterion, given, line in _read_sheet(path, key):
            if criterion not in found:
                raise BadFileError(path, line, f"answers: {criterion!r} is not one of {', '.join(found)}")
            question = questions.get((rater, number))
            if question is None:
                raise BadFileError(path, line, f"question: {rater!r} was not asked a number {number}")
            try:
                answer = read_answer(key, question, given)
            except BadAnswerError as error:
                raise BadFileError(path, line, f"answers.{criterion}{error}") from None
            if not answer:
                continue
            if (rater, number) in found[criterion]:
                raise BadFileError(path, line, f"answers.{criterion}: {rater}'s question {number} was already answered")
            found[criterion][rater, number] = answer
    return {criterion: build_option_table(key, questions, answers) for criterion, answers in found.items()}


def _read_sheet(path: Path, key: DesignKey) -> Iterator[Given]:
    if path.suffix == ".csv":
        yield from _read_csv(path, key)
        return
    for line, record in read_rows(path):
        if record.get("study") not in (None, key.study):
            raise BadFileError(path, line, f"study: is {record['study']!r}, but the key is of {key.study!r}")
        page = check_row(_SheetLine.model_validate, path, line, record)
        for criterion, given in page.answers.items():
            if given is not None:
                yield page.rater, page.question, criterion, given, line


def _read_csv(path: Path, key: DesignKey) -> Iterator[Given]:
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
    for (rater, question, criterion), (cells, line) in groups.items():
        try:
            yield rater, question, criterion, read_cells(key, cells), line
        except BadAnswerError as error:
            raise BadFileError(path, line, f"answer of {rater}'s question {question}, {criterion}{error}") from None


def build_option_table(
    key: DesignKey,
    questions: Mapping[tuple[str, int], DesignQuestion],
    answers: Mapping[tuple[str, int], Mapping[str, float]],
) -> OptionTable:
    """`answers` are by rater and question, then by option, as `read_answer` returns them."""
    systems = sorted({item.system for item in key.items.values()})
    rows = list(_number_rows(key, questions, answers))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 7).T
    rater, dialogue, system, item_of, question_of = (column.astype(np.intp) for column in columns[:5])
    return OptionTable(
        systems=systems,
        rater=rater,
        dialogue=dialogue,
        system=system,
        item=item_of,
        question=question_of,
        answer=columns[5],
        standard=columns[6],
        unanswered=len(key.questions) - len(answers),
    )


def _number_rows(
    key: DesignKey,
    questions: Mapping[tuple[str, int], DesignQuestion],
    answers: Mapping[tuple[str, int], Mapping[str, float]],
) -> Iterator[tuple[float, ...]]:
    """A row per option: the numbers of its rater, dialogue, system, item and question, the answer, the standard."""
    raters = _number({question.rater for question in key.questions})
    dialogues = _number({item.dialogue for item in key.items.values()})
    systems = _number({item.system for item in key.items.values()})
    items = _number(set(key.items))
    for number, (place, given) in enumerate(sorted(answers.items())):
        question = questions[place]
        standard = np.nan if question.standard is None else question.standard
        for option in question.options:  # in the key's order, so that the last digits do not depend on the sheet's
            if option in given:
                item = key.items[option]
                who = raters[question.rater], dialogues[item.dialogue], systems[item.system]
                yield *who, items[option], number, given[option], standard


def _number(names: set[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}
