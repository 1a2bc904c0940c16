"""Filled sheets: reads JSON lines and CSV against the key. Errors name the line and the field."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from turnscore_assessment.designs.answer_forms import BadAnswerError, read_answer, read_cells
from turnscore_assessment.designs.clustering import Integers
from turnscore_assessment.designs.form import DesignKey, Question
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import unguard
from turnscore_assessment.ratings.rating_file import LINE_CHARACTERS, describe_problem, read_lines

CSV_NEEDED = ("rater", "question", "criterion", "item", "answer")

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
    try:
        return DesignKey.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BadFileError(path, 0, describe_problem(error)) from None


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
    for line, record in read_lines(path):
        if record.get("study") not in (None, key.study):
            raise BadFileError(path, line, f"study: is {record['study']!r}, but the key is of {key.study!r}")
        rater, number, answers = record.get("rater"), record.get("question"), record.get("answers")
        if not isinstance(rater, str):
            raise BadFileError(path, line, "rater: must be a text")
        if isinstance(number, bool) or not isinstance(number, int):
            raise BadFileError(path, line, "question: must be a whole number")
        if not isinstance(answers, dict):
            raise BadFileError(path, line, "answers: must be an object")
        for criterion, given in answers.items():
            if given is None:
                continue
            if not isinstance(given, dict):
                raise BadFileError(path, line, f"answers.{criterion}: must be an object")
            yield rater, number, criterion, given, line


def _read_csv(path: Path, key: DesignKey) -> Iterator[Given]:
    """The cells of a question and criterion together; with `;` between cells a decimal may have a comma."""
    groups: dict[tuple[str, int, str], tuple[dict[str, str], int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            first = file.readline(LINE_CHARACTERS)
        except UnicodeDecodeError as error:
            raise BadFileError(path, 1, f"cannot be read ({error})") from None
        separator = ";" if first.count(";") >= len(CSV_NEEDED) - 1 else ","
        file.seek(0)
        reader = csv.DictReader(file, delimiter=separator)
        try:
            missing = [column for column in CSV_NEEDED if column not in (reader.fieldnames or ())]
            if missing:
                raise BadFileError(path, 1, f"has no column `{missing[0]}`")
            for row in reader:
                number = str(row["question"] or "").strip()
                if not number.isdecimal() or len(number) > LONGEST_NUMBER:
                    raise BadFileError(path, reader.line_num, "question: must be a whole number")
                rater, criterion, item = (
                    unguard(str(row[name] or "").strip()) for name in ("rater", "criterion", "item")
                )
                place = rater, int(number), criterion
                cells, _ = groups.setdefault(place, ({}, reader.line_num))
                cell = str(row["answer"] or "").strip()
                cells[item] = cell.replace(",", ".") if separator == ";" else cell
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadFileError(path, reader.line_num, f"cannot be read ({error})") from None
    for (rater, question, criterion), (cells, line) in groups.items():
        try:
            yield rater, question, criterion, read_cells(key, cells), line
        except BadAnswerError as error:
            raise BadFileError(path, line, f"answer of {rater}'s question {question}, {criterion}{error}") from None


def build_option_table(
    key: DesignKey,
    questions: Mapping[tuple[str, int], Question],
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
    questions: Mapping[tuple[str, int], Question],
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
