"""Reading and writing ratings files: JSON lines, gzipped where the name ends in `.gz`. Computes nothing."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from turnscore_assessment.errors import BadRatingsError
from turnscore_assessment.files import UNREADABLE, open_text, write_packed
from turnscore_assessment.ratings.form import RatedDialogue, StudyDescription

LINE_CHARACTERS = 4_000_000
"""The longest line that is read. Chosen: far above a dialogue of the most turns that people can type."""

MOST_DIALOGUES = 200_000
"""Most dialogues. Chosen: a hundred times the published study, and still in memory at once."""

Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class RatingFile:
    """A study and its rated dialogues, in the file's order."""

    description: StudyDescription
    dialogues: Sequence[RatedDialogue]


def read_ratings(path: Path) -> RatingFile:
    """The study of a `.jsonl` or `.jsonl.gz` file. BadRatingsError names the file, the line and the field."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise BadRatingsError(path, 0, "is empty")
    description = _build(StudyDescription, path, *first)
    dialogues: list[RatedDialogue] = []
    seen: dict[tuple[str, str, int], int] = {}
    for number, record in lines:
        if len(dialogues) == MOST_DIALOGUES:
            raise BadRatingsError(path, number, f"there are more than {MOST_DIALOGUES} dialogues")
        dialogue = _build(RatedDialogue, path, number, record)
        reason = _find_misfit(description, dialogue) or _find_repetition(dialogue, seen, number)
        if reason:
            raise BadRatingsError(path, number, reason)
        dialogues.append(dialogue)
    if not dialogues:
        raise BadRatingsError(path, 0, "has no rated dialogue")
    _check_degraded(path, dialogues)
    return RatingFile(description, dialogues)


def write_ratings(path: Path, ratings: RatingFile) -> None:
    """Writes the file; gzipped, byte for byte the same each time, where the name ends in `.gz`."""
    rows: list[BaseModel] = [ratings.description, *ratings.dialogues]
    content = "".join(row.model_dump_json(exclude_defaults=True) + "\n" for row in rows)
    write_packed(path, content)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, object) of every line that is not blank; BadRatingsError where a line is no object."""
    number = 0
    try:
        with open_text(path) as file:
            while line := file.readline(LINE_CHARACTERS + 1):
                number += 1
                if len(line) > LINE_CHARACTERS:
                    raise BadRatingsError(path, number, f"is longer than {LINE_CHARACTERS} characters")
                if line.strip():
                    yield number, _parse(path, number, line)
    except FileNotFoundError as error:
        raise BadRatingsError(path, 0, "does not exist") from error
    except UNREADABLE as error:
        raise BadRatingsError(path, number + 1, f"cannot be read ({error})") from error


def describe_problem(error: ValidationError) -> str:
    """The first field that is wrong, and how: `criteria.0.low: must be below high`."""
    first: Any = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {message[:1].lower()}{message[1:]}" if place else message


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRatingsError(path, number, f"is not JSON ({error})") from error
    if not isinstance(record, dict):
        raise BadRatingsError(path, number, "is not a JSON object")
    return record


def _build(form: type[Form], path: Path, number: int, record: dict[str, Any]) -> Form:
    try:
        return form.model_validate(record)
    except ValidationError as error:
        hint = " (the first line must describe the study)" if form is StudyDescription else ""
        raise BadRatingsError(path, number, describe_problem(error) + hint) from None


def _find_misfit(description: StudyDescription, dialogue: RatedDialogue) -> str | None:
    """Why the dialogue does not fit its study; None where it does."""
    if dialogue.study not in (None, description.study):
        return f"study: is {dialogue.study!r}, but the first line describes {description.study!r}"
    unknown = sorted(set(dialogue.ratings) - set(description.names))
    if unknown:
        return f"ratings.{unknown[0]}: is not a criterion of the study, which has {', '.join(description.names)}"
    for criterion in description.criteria:
        rating = dialogue.ratings.get(criterion.name)
        if rating is None:
            return f"ratings.{criterion.name}: is missing"
        if not criterion.low <= rating <= criterion.high:
            return f"ratings.{criterion.name}: {rating:g} is not within {criterion.low:g} and {criterion.high:g}"
    return None


def _find_repetition(dialogue: RatedDialogue, seen: dict[tuple[str, str, int], int], number: int) -> str | None:
    if dialogue.position is None:
        return None
    earlier = seen.setdefault((dialogue.worker, dialogue.hit, dialogue.position), number)
    if earlier == number:
        return None
    return f"position: this worker's HIT has a dialogue at position {dialogue.position} already, in line {earlier}"


def _check_degraded(path: Path, dialogues: Sequence[RatedDialogue]) -> None:
    degraded = {dialogue.system for dialogue in dialogues if dialogue.degraded}
    ordinary = {dialogue.system for dialogue in dialogues if not dialogue.degraded}
    both = sorted(degraded & ordinary)
    if both:
        raise BadRatingsError(path, 0, f"degraded: system {both[0]!r} is degraded in some lines and not in others")
    if not ordinary:
        raise BadRatingsError(path, 0, "degraded: every system is")
