"""Reference files: JSON lines of contexts, hypotheses and references, and the data of Gupta et al. 2019.

    {"context_id": "c1", "system": "hred", "hypotheses": ["i see ."], "references": ["oh ?", "really ?"], "rating": 2.5}

`response` may stand for one hypothesis. `reference`, where given, is the original reply, and `references` then are all
that are known, in any order. Without `context_id` contexts differ by the texts of `context`. Other fields are left
alone. A file whose name ends in .gz is unpacked while it is read.

"Investigating Evaluation of Open-Domain Dialogue Systems With Human Generated Multiple References" (SIGDIAL 2019) is
read in place, by path: the texts are DailyDialog's (CC BY-NC-SA 4.0) and ship with nothing.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnscore_assessment.errors import ReferencesError, UnreadableRowError
from turnscore_assessment.files import UNREADABLE, open_text

MOST_TEXTS = 1000
"""Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most."""
MOST_CHARS = 100_000
"""Most characters of one text. Chosen: far beyond any reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedReplies:
    """One row of a file; texts are compared only within it."""

    context_id: str
    """Rows of one context depend on each other: intervals are taken over contexts."""
    system: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]
    """The original reply first: `single` compares with it."""
    rating: float | None = None
    """People's rating of the row's hypothesis."""

    def with_references(self, count: int) -> "ReferencedReplies":
        """The row with its first `count` references."""
        return ReferencedReplies(
            context_id=self.context_id,
            system=self.system,
            hypotheses=self.hypotheses,
            references=self.references[:count],
            rating=self.rating,
        )


def by_system(rows: Sequence[ReferencedReplies]) -> dict[str, list[ReferencedReplies]]:
    """The rows of each system, in the order in which systems are first named."""
    found: dict[str, list[ReferencedReplies]] = {}
    for row in rows:
        found.setdefault(row.system, []).append(row)
    return found


MOST_LINE_CHARS = 16 * 1024 * 1024
"""Most characters of one line. Chosen: the rest of a longer line is not read."""


def read_comparisons(path: Path) -> list[ReferencedReplies]:
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


def _read_row(fields: Mapping[str, Any], place: str) -> ReferencedReplies:
    hypotheses = _read_hypotheses(fields, place)
    references = _read_texts(fields, "references", place)
    if (original := fields.get("reference")) is not None:
        first = _check_text(original, "reference", place)
        others = list(references)
        if first in others:
            others.remove(first)
        references = (first, *others)
    return ReferencedReplies(
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


RATINGS_FILE, TEST_FILE = "ratings.jsonl.gz", "test.jsonl.gz"
REFERENCES_PER_TURN = 5
"""The original, then four by one worker. The paper's own fifth collected one is not released."""
HUMAN, HUMAN_PLACE = "human", 1
"""Table 6's human is the first collected reference, against the other four."""


def read_rated(folder: Path) -> list[ReferencedReplies]:
    """The 500 rows of Table 4, each with all five references, the original first. Raises ReferencesError."""
    known = read_replies(folder)
    rows = read_comparisons(folder / RATINGS_FILE)
    for row in rows:
        if row.context_id not in known:
            raise ReferencesError(f"{folder / TEST_FILE} has no turn {row.context_id}, which {RATINGS_FILE} rates")
    return [replace(row, references=tuple(known[row.context_id])) for row in rows]


def read_human(folder: Path, *, is_single: bool) -> list[ReferencedReplies]:
    """The rows of Table 6's human: all 6,740 turns, against the original alone or against the four others."""
    places = (0,) if is_single else (0, 2, 3, 4)
    return [
        ReferencedReplies(
            context_id=name,
            system=HUMAN,
            hypotheses=(texts[HUMAN_PLACE],),
            references=tuple(texts[place] for place in places),
        )
        for name, texts in read_replies(folder).items()
    ]


def read_outputs(
    folder: Path, outputs: Path, mapping: Mapping[str, int], *, is_single: bool
) -> list[ReferencedReplies]:
    """The rows of another system of Table 6: a line of `outputs` for each turn, `mapping` from its name to the line.

    The release's `Code/hredf.txt` with `jsons/test_duid_mapping.json` is HRED. Lines count from 1. Raises
    ReferencesError where a turn has no line.
    """
    lines = outputs.read_text(encoding="utf-8").splitlines()
    rows = []
    for row in read_human(folder, is_single=is_single):
        number = mapping.get(row.context_id, 0)
        if not 0 < number <= len(lines):
            raise ReferencesError(f"{outputs} has no line for turn {row.context_id}")
        rows.append(replace(row, system=outputs.stem, hypotheses=(lines[number - 1],)))
    return rows


def read_replies(folder: Path) -> dict[str, Sequence[str]]:
    """The five replies to every turn with replies, by dialogue and place: `73_4` is turn 4 of dialogue 73, from 0."""
    found: dict[str, Sequence[str]] = {}
    for number, (place, dialogue) in enumerate(read_lines(folder / TEST_FILE)):
        for turn_number, turn in enumerate(_read_turns(dialogue, place)):
            if references := turn.get("references"):
                if len(references) != REFERENCES_PER_TURN:
                    raise UnreadableRowError(place, f"turns.{turn_number}.references: five are expected")
                found[f"{number}_{turn_number}"] = references
    return found


def _read_turns(dialogue: Mapping[str, Any], place: str) -> list[Any]:
    turns = dialogue.get("turns")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise UnreadableRowError(place, "turns: must be a list of objects")
    return turns
