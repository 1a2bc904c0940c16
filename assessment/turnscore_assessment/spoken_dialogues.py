"""Files of dialogues: JSON lines with `turns`, or a ratings file. Reads speakers and texts alone.

A turn is an object with `speaker` (`user`, `system`) and `text`, or a plain text; every second plain text is the
system's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.ratings.rating_file import read_lines

USER, SYSTEM = "user", "system"

SpokenTurns = list[tuple[str, str]]
"""Speakers and texts."""


@dataclass(frozen=True)
class SpokenDialogue:
    """One dialogue; `system` is empty where the line names none."""

    line: int
    system: str
    turns: SpokenTurns


def read_dialogues(path: Path) -> Iterator[SpokenDialogue]:
    """Every dialogue that has a turn; a ratings file's first line is skipped. BadFileError names line and field."""
    is_ratings = False
    for number, record in read_lines(path):
        if "criteria" in record and "turns" not in record:
            is_ratings = True
            continue
        turns = _read_turns(path, number, record.get("turns", [] if is_ratings else None))
        if turns:
            yield SpokenDialogue(number, str(record.get("system", record.get("model", ""))), turns)


def _read_turns(path: Path, number: int, turns: object) -> SpokenTurns:
    if not isinstance(turns, list):
        raise BadFileError(path, number, "turns: must be a list")
    return [_read_turn(path, number, place, turn) for place, turn in enumerate(turns)]


def _read_turn(path: Path, number: int, place: int, turn: Any) -> tuple[str, str]:
    if isinstance(turn, str):
        return (SYSTEM if place % 2 else USER), turn
    if not isinstance(turn, dict) or not isinstance(turn.get("text"), str):
        raise BadFileError(path, number, f"turns.{place}.text: must be a text")
    if turn.get("speaker") not in (USER, SYSTEM):
        raise BadFileError(path, number, f"turns.{place}.speaker: must be user or system")
    return turn["speaker"], turn["text"]
