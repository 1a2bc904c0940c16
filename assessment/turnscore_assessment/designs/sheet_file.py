"""Rating sheets: a JSON-lines and a CSV file per rater, and the key file apart. Writes them, and reads none."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from turnscore_assessment.designs.form import Design, DesignKey, DesignKind, Item, Question
from turnscore_assessment.files import to_csv
from turnscore_assessment.ratings.form import SpokenTurn

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
        written[sheets / f"{rater}.csv"] = _write_csv(design, questions)
    for path, content in written.items():
        path.write_text(content, encoding="utf-8", newline="")
    return list(written)


def make_line(design: Design, question: Question) -> dict[str, Any]:
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


def make_empty_answer(key: DesignKey, question: Question) -> dict[str, None]:
    """The empty answer that a rater fills for one criterion."""
    if key.design is DesignKind.BEST_WORST:
        return {"best": None, "worst": None}
    if key.design is DesignKind.PAIRWISE:
        return {"better": None}
    return dict.fromkeys(question.options)


def _show(item: Item) -> dict[str, Any]:
    if item.response is not None:
        return {"response": item.response}
    return {"turns": [turn.model_dump() for turn in item.turns]}


def _write_csv(design: Design, questions: Sequence[Question]) -> str:
    rows = []
    for question in questions:
        reference = design.references.get(question.dialogue)
        for criterion in design.key.criteria:
            for position, option in enumerate(question.options, start=1):
                item = design.texts[option]
                row = [design.key.study, question.rater, question.question, criterion.name, position, option]
                rows.append([*row, _say_turns(item.context), _say(reference), question.standard, _say(item), None])
    return to_csv(COLUMNS, rows)


def _say(item: Item | None) -> str:
    if item is None:
        return ""
    return item.response if item.response is not None else _say_turns(item.turns)


def _say_turns(turns: Iterable[SpokenTurn]) -> str:
    return "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns)
