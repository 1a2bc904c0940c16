"""Exchanges: a turn and its reply, and the split that keeps dialogues whole. Labels nothing."""

import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from turnscore_assessment.data.dialogues import merge_turns, read_dialogues
from turnscore_assessment.errors import BadDataError

HELD_OUT_PERCENT = 10
"""Share of dialogues on which nothing is trained and no scale is fitted. Chosen."""
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


class Part(StrEnum):
    TRAIN = "train"
    HELD_OUT = "held out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    dialogue: str
    query: str
    reply: str


def split_words(text: str) -> list[str]:
    """The text's words and punctuation marks, in lower case."""
    return _WORD.findall(text.lower())


def normalize(text: str) -> str:
    """A key that equal texts share: their words alone, or their marks where they have no words."""
    words = split_words(text)
    return " ".join([word for word in words if word[0].isalnum()] or words)


def read_exchanges(path: Path, most: int, seed: int = 0) -> list[Exchange]:
    """Exchanges of whole dialogues drawn at random, about `most` in all, equally many from each `source`.

    Raises BadDataError where the file cannot be read or has no two turns in a row.
    """
    by_source: dict[str, list[list[Exchange]]] = {}
    for row, dialogue in enumerate(read_dialogues(path), start=1):
        turns = [turn.text.strip() for turn in merge_turns(dialogue.turns)]
        name = f"{path.name} {row}"
        found = [
            Exchange(dialogue=name, query=query, reply=reply)
            for query, reply in pairwise(turns)
            if split_words(query) and split_words(reply)
        ]
        if found:
            by_source.setdefault(dialogue.source, []).append(found)
    if not by_source:
        raise BadDataError(path, 0, "has no two turns in a row")
    share = -(-most // len(by_source))
    return [each for _, members in sorted(by_source.items()) for each in _draw(members, share, seed)]


def _draw(dialogues: Sequence[Sequence[Exchange]], share: int, seed: int) -> list[Exchange]:
    order = list(dialogues)
    random.Random(seed).shuffle(order)  # noqa: S311
    drawn: list[Exchange] = []
    for exchanges in order:
        if len(drawn) >= share:
            break
        drawn += exchanges
    return drawn


def split_exchanges(exchanges: Iterable[Exchange]) -> dict[Part, list[Exchange]]:
    """The part of a dialogue, decided by its first text alone: the same on every machine and for copies of it."""
    parts: dict[Part, list[Exchange]] = {part: [] for part in Part}
    first: dict[str, str] = {}
    for each in exchanges:
        opening = first.setdefault(each.dialogue, normalize(each.query))
        share = int.from_bytes(hashlib.sha256(opening.encode()).digest()[:4], "big") % 100
        parts[Part.HELD_OUT if share < HELD_OUT_PERCENT else Part.TRAIN].append(each)
    return parts
