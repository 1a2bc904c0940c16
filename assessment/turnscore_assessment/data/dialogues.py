"""Dialogues in files: JSON lines, one dialogue per line, gzipped or not. Reads and checks them; labels nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, with_config

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import check_row, read_rows

USER, SYSTEM = "user", "system"
THUMB_NONE, THUMB_DOWN, THUMB_UP = 0, 1, 2

Spoken = tuple[str, str]
"""Speaker (user or system) and text."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One message. `thumb` is the other speaker's vote on it: 0 none, 1 down, 2 up."""

    speaker: str
    text: str
    thumb: Annotated[int, Field(ge=THUMB_NONE, le=THUMB_UP)] = THUMB_NONE


def _name_speakers(turns: object) -> object:
    """Turns that are plain texts are said by A and B by turns, A first."""
    if not isinstance(turns, list):
        return turns
    return [
        {"speaker": "AB"[place % 2], "text": turn} if isinstance(turn, str) else turn
        for place, turn in enumerate(turns)
    ]


@with_config(ConfigDict(coerce_numbers_to_str=True))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDialogue:
    """One conversation, oldest turn first. `ratings` and `participants` are as released and may be empty.

    `system` is the name or number of the system that spoke, where the row has one under `system` or `model`; `line` is
    the row's number in its file, from 1.
    """

    id: str
    order: int
    turns: Annotated[tuple[RecordedTurn, ...], BeforeValidator(_name_speakers)]
    participants: Mapping[str, str] = field(default_factory=dict)
    ratings: Any = None
    source: str = ""
    system: str = ""
    line: int = 0

    @property
    def spoken(self) -> tuple[Spoken, ...]:
        """Speakers and texts."""
        return tuple((turn.speaker, turn.text) for turn in self.turns)

    @property
    def has_bot(self) -> bool:
        return "bot" in self.participants.values()


_DIALOGUE = TypeAdapter(RecordedDialogue)


def read_dialogues(path: Path) -> Iterator[RecordedDialogue]:
    """Yields the dialogues of a `.jsonl` or `.jsonl.gz` file in file order.

    A turn may be an object with `speaker` and `text`, or a plain string (then the speakers alternate, "A" first).
    Raises BadFileError naming the file, the line and the field.
    """
    for line, record in read_rows(path):
        fields = {"id": line, "order": line - 1, "system": record.get("model", ""), **record, "line": line}
        yield check_row(_DIALOGUE.validate_python, path, line, fields)


def read_conversations(path: Path) -> Iterator[RecordedDialogue]:
    """Yields every dialogue between a user and a system that has a turn.

    Every second plain text is the system's. A ratings file's first line is skipped. Raises BadFileError.
    """
    names = {"A": USER, "B": SYSTEM, USER: USER, SYSTEM: SYSTEM}
    is_ratings = False
    for line, record in read_rows(path):
        if "criteria" in record and "turns" not in record:
            is_ratings = True
            continue
        fields = {"turns": [] if is_ratings else None, "system": record.get("model", ""), **record, "line": line}
        fields |= {"id": line, "order": line - 1}
        found = check_row(_DIALOGUE.validate_python, path, line, fields)
        for place, turn in enumerate(found.turns):
            if turn.speaker not in names:
                raise BadFileError(path, line, f"turns.{place}.speaker: must be user or system")
        if found.turns:
            turns = tuple(replace(turn, speaker=names[turn.speaker]) for turn in found.turns)
            yield replace(found, turns=turns)


def merge_turns(turns: Sequence[RecordedTurn]) -> tuple[RecordedTurn, ...]:
    """Joins consecutive messages of one speaker with a space; the last vote that is not 0 stands for all."""
    merged: list[RecordedTurn] = []
    for turn in turns:
        if merged and merged[-1].speaker == turn.speaker:
            before = merged[-1]
            merged[-1] = RecordedTurn(turn.speaker, f"{before.text} {turn.text}", turn.thumb or before.thumb)
        else:
            merged.append(turn)
    return tuple(merged)
