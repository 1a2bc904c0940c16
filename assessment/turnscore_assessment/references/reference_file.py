"""Reference files: JSON lines of contexts, hypotheses and references. Names the line and the field that is wrong.

    {"context_id": "c1", "system": "hred", "hypotheses": ["i see ."], "references": ["oh ?", "really ?"], "rating": 2.5}

`response` may stand for one hypothesis. `reference`, where given, is the original reply, and `references` then are all
that are known, in any order. Without `context_id` contexts differ by the texts of `context`. Other fields are left
alone. A file whose name ends in .gz is unpacked while it is read.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnscore_assessment.files import UNREADABLE, open_text
from turnscore_assessment.references.comparisons import MOST_CHARS, MOST_TEXTS, Comparison
from turnscore_assessment.references.errors import ReferencesError, UnreadableRowError

MOST_LINE_CHARS = 16 * 1024 * 1024
"""Most characters of one line. Chosen: the rest of a longer line is not read."""


def read_comparisons(path: Path) -> list[Comparison]:
    """The rows of a file, in order. Raises UnreadableRowError, or ReferencesError where there is none."""
    rows = [_read_row(fields, place) for place, fields in read_lines(path)]
    if not rows:
        raise ReferencesError(f"{path}: must have at least one row")
    return rows


def read_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each line that is not empty, as where it stands and its object."""
    try:
        with open_text(path) as lines:
            number = 0
            while line := lines.readline(MOST_LINE_CHARS + 1):
                number += 1
                if line.strip():
                    yield f"{path}, line {number}", _parse(line, f"{path}, line {number}")
    except (OSError, *UNREADABLE) as error:
        raise ReferencesError(f"{path} cannot be read: {error}") from None


def _parse(line: str, place: str) -> Mapping[str, Any]:
    if len(line) > MOST_LINE_CHARS:
        raise UnreadableRowError(place, f"the line has more than {MOST_LINE_CHARS} characters")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise UnreadableRowError(place, "the line is not JSON") from None
    if not isinstance(fields, dict):
        raise UnreadableRowError(place, "the line is not an object")
    return fields


def _read_row(fields: Mapping[str, Any], place: str) -> Comparison:
    hypotheses = _read_hypotheses(fields, place)
    references = _read_texts(fields, "references", place)
    if (original := fields.get("reference")) is not None:
        first = _check_text(original, "reference", place)
        others = list(references)
        if first in others:
            others.remove(first)
        references = (first, *others)
    return Comparison(
        context_id=_read_context_id(fields, place),
        system=_read_name(fields, "system", place) or "all",
        hypotheses=hypotheses,
        references=references,
        rating=_read_rating(fields, place),
    )


def _read_hypotheses(fields: Mapping[str, Any], place: str) -> tuple[str, ...]:
    has_one, has_several = "response" in fields, "hypotheses" in fields
    if has_one == has_several:
        raise UnreadableRowError(place, "give either hypotheses or response")
    if has_one:
        return (_check_text(fields["response"], "response", place),)
    return _read_texts(fields, "hypotheses", place)


def _read_texts(fields: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
    texts = fields.get(name)
    if not isinstance(texts, list) or not texts:
        raise UnreadableRowError(place, f"{name}: must be a list of at least one text")
    if len(texts) > MOST_TEXTS:
        raise UnreadableRowError(place, f"{name}: {len(texts)} texts; at most {MOST_TEXTS} are taken")
    return tuple(_check_text(text, f"{name}.{number}", place) for number, text in enumerate(texts))


def _check_text(text: object, name: str, place: str) -> str:
    if not isinstance(text, str):
        raise UnreadableRowError(place, f"{name}: must be a text")
    if len(text) > MOST_CHARS:
        raise UnreadableRowError(place, f"{name}: {len(text)} characters; at most {MOST_CHARS} are taken")
    return text


def _read_context_id(fields: Mapping[str, Any], place: str) -> str:
    if name := _read_name(fields, "context_id", place):
        return name
    context = fields.get("context")
    if isinstance(context, str):
        return context
    if isinstance(context, Sequence) and context and all(isinstance(text, str) for text in context):
        return "\n".join(context)
    raise UnreadableRowError(place, "give context_id, or context as a list of texts")


def _read_name(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UnreadableRowError(place, f"{name}: must be a text")
    return str(value)


def _read_rating(fields: Mapping[str, Any], place: str) -> float | None:
    rating = fields.get("rating")
    if rating is None:
        return None
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not math.isfinite(rating):
        raise UnreadableRowError(place, "rating: must be a number")
    return float(rating)
