"""Dialogues in the shared form: gzipped JSON lines, one dialogue per line. Reads and checks them; labels nothing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnscore_assessment.errors import BadDataError
from turnscore_assessment.files import UNREADABLE, open_text

THUMB_NONE, THUMB_DOWN, THUMB_UP = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `thumb` is the other speaker's vote on it: 0 none, 1 down, 2 up."""

    speaker: str
    text: str
    thumb: int = THUMB_NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One conversation, oldest turn first. `ratings` and `participants` are as released and may be empty.

    `system` is the name or number of the system that spoke, where the row has one under `system` or `model`.
    """

    id: str
    order: int
    turns: tuple[Turn, ...]
    participants: Mapping[str, str] = field(default_factory=dict)
    ratings: Any = None
    source: str = ""
    system: str = ""

    @property
    def has_bot(self) -> bool:
        return "bot" in self.participants.values()


def read_dialogues(path: Path) -> Iterator[Dialogue]:
    """Yields the dialogues of a `.jsonl` or `.jsonl.gz` file in file order.

    A turn may be an object with `speaker` and `text`, or a plain string (then the speakers alternate, "A" first).
    Raises BadDataError naming the file and the row.
    """
    for row, record in read_rows(path):
        yield _build_dialogue(record, path, row)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row number from 1, object) for every line that is not blank; BadDataError where a line is no object."""
    row = 0
    try:
        with open_text(path) as lines:
            for row, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                record = _parse(line, path, row)
                if not isinstance(record, dict):
                    raise BadDataError(path, row, "is not a JSON object")
                yield row, record
    except FileNotFoundError as error:
        raise BadDataError(path, 0, "the file does not exist") from error
    except UNREADABLE as error:
        raise BadDataError(path, row + 1, f"cannot be read ({error})") from error


def _parse(line: str, path: Path, row: int) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise BadDataError(path, row, f"is not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets in thousands of brackets
        raise BadDataError(path, row, f"is no JSON that can be read ({str(error).partition(';')[0]})") from error


def _build_dialogue(record: dict[str, Any], path: Path, row: int) -> Dialogue:
    turns = record.get("turns")
    if not isinstance(turns, list):
        raise BadDataError(path, row, "has no list `turns`")
    participants = record.get("participants", {})
    if not isinstance(participants, dict):
        raise BadDataError(path, row, "`participants` is not an object")
    order = record.get("order", row - 1)
    if not isinstance(order, int):
        raise BadDataError(path, row, "`order` is not an integer")
    return Dialogue(
        id=str(record.get("id", row)),
        order=order,
        turns=tuple(_build_turn(turn, index, path, row) for index, turn in enumerate(turns)),
        participants=participants,
        ratings=record.get("ratings"),
        source=str(record.get("source", "")),
        system=str(record.get("system", record.get("model", ""))),
    )


def _build_turn(turn: object, index: int, path: Path, row: int) -> Turn:
    if isinstance(turn, str):
        return Turn("AB"[index % 2], turn)
    if not isinstance(turn, dict):
        raise BadDataError(path, row, f"turn {index} is neither an object nor a string")
    speaker, text, thumb = turn.get("speaker"), turn.get("text"), turn.get("thumb", THUMB_NONE)
    if not isinstance(speaker, str) or not isinstance(text, str):
        raise BadDataError(path, row, f"turn {index} lacks a string `speaker` or `text`")
    if thumb not in (THUMB_NONE, THUMB_DOWN, THUMB_UP):
        raise BadDataError(path, row, f"turn {index} has thumb {thumb!r}, expected 0, 1 or 2")
    return Turn(speaker, text, thumb)


def merge_turns(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Joins consecutive messages of one speaker with a space; the last vote that is not 0 stands for all."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].speaker == turn.speaker:
            before = merged[-1]
            merged[-1] = Turn(turn.speaker, f"{before.text} {turn.text}", turn.thumb or before.thumb)
        else:
            merged.append(turn)
    return tuple(merged)
