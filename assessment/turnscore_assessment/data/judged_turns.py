"""Reads responses and user turns judged by the rubric of docs/models/quality.md, and splits them by dialogue."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turnscore_assessment.data.dialogue_sets import Spoken
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.data.rated_turns import RatedTurn

TURNS_FILE, MODERN_FILE, USER_TURNS_FILE = (
    "judged_turns.jsonl.gz",
    "judged_modern.jsonl.gz",
    "judged_user_turns.jsonl.gz",
)
MARKS = ("relevant", "fluent", "engaging", "overall")
"""What a response is marked for, 1 to 5; the files call `fluent` `sound`."""
LIVE_SETS = ("dstc9", "convai", "human_assessment")
"""Of the judged sets, those of chatbots' turns as they were said."""
UNKNOWN = math.nan

Part = Literal["train", "choose", "calibrate", "report"]
_CHOOSE, _CALIBRATE = 0.3, 0.6
"""Of the judged dialogues that are not trained on, the share below which a hash chooses, and calibrates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResponse:
    """A response with its marks as 0 to 1 (1 of 5 is 0, 5 of 5 is 1), UNKNOWN where there is none."""

    text: str
    made: str
    marks: Mapping[str, float] = field(default_factory=dict)

    def mark(self, name: str) -> float:
        return self.marks.get(name, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedContext:
    """A context, oldest turn first, and every judged response to it."""

    set_name: str
    dialogue: str
    part: Part
    context: tuple[Spoken, ...]
    responses: tuple[JudgedResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedUserTurn:
    """A user turn after a system's: satisfaction from 0 to 1 and the signals it shows.

    `drawn_at_random` tells turns that show how rare signals are from turns drawn for words that make one likely.
    """

    set_name: str
    dialogue: str
    part: Part
    context: tuple[Spoken, ...]
    text: str
    satisfaction: float
    signals: frozenset[str]
    drawn_at_random: bool


def part_of(dialogue: str, split: str) -> Part:
    """Which part a dialogue belongs to: what was not trained on is split by the SHA-256 of the dialogue's name."""
    if split == "train":
        return "train"
    place = int.from_bytes(hashlib.sha256(f"quality 2: {dialogue}".encode()).digest()[:4], "big") / 2**32
    return "choose" if place < _CHOOSE else "calibrate" if place < _CALIBRATE else "report"


def scale_mark(mark: float) -> float:
    """A mark from 1 to 5 as 0 to 1."""
    return (float(mark) - 1) / 4


def read_judged_contexts(path: Path) -> Iterator[JudgedContext]:
    """The rows of a file of judged responses; turns without text are left out."""
    for _, row in read_rows(path):
        responses = tuple(
            JudgedResponse(
                text=each["text"],
                made=each.get("made", ""),
                marks={
                    name: scale_mark(each[key])
                    for name, key in zip(MARKS, ("relevant", "sound", "engaging", "overall"), strict=True)
                },
            )
            for each in row["responses"]
            if each["text"].strip()
        )
        yield JudgedContext(
            set_name=row["set"],
            dialogue=row["dialogue"],
            part=part_of(row["dialogue"], row["split"]),
            context=_read_turns(row["context"]),
            responses=responses,
        )


def read_judged_user_turns(path: Path) -> Iterator[JudgedUserTurn]:
    """The rows of a file of judged user turns."""
    for _, row in read_rows(path):
        *context, (_, text) = _read_turns(row["turns"])
        yield JudgedUserTurn(
            set_name=row["set"],
            dialogue=row["dialogue"],
            part=part_of(row["dialogue"], row["split"]),
            context=tuple(context),
            text=text,
            satisfaction=scale_mark(row["satisfaction"]),
            signals=frozenset(row["signals"]),
            drawn_at_random=row["drawn"] == "random",
        )


def _read_turns(turns: Sequence[Mapping[str, Any]]) -> tuple[Spoken, ...]:
    return tuple((each["speaker"], each["text"]) for each in turns if each["text"].strip())


def read_judged_turns(folder: Path, parts: Sequence[Part]) -> list[RatedTurn]:
    """The judged responses of these parts as rated turns, their overall mark from 1 to 5 as the rating.

    Live turns of chatbots, real responses with made-up ones, and modern ones are sets of their own.
    """
    turns = []
    for name in (TURNS_FILE, MODERN_FILE):
        if not (folder / name).exists():
            continue
        for each in read_judged_contexts(folder / name):
            if each.part not in parts:
                continue
            live = each.set_name in LIVE_SETS
            named = "judged-modern" if name == MODERN_FILE else "judged-live" if live else "judged-made"
            turns += [
                RatedTurn(
                    set_name=named,
                    system=each.set_name,
                    dialogue=each.dialogue,
                    context=each.context,
                    response=response.text,
                    rating=1 + 4 * response.mark("overall"),
                )
                for response in each.responses
            ]
    return turns
