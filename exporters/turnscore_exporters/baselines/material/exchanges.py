"""Exchanges: a turn and its reply, and the split that keeps dialogues whole. Labels nothing."""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from turnscore_assessment.data.dialogues import merge_turns, read_dialogues
from turnscore_assessment.errors import BadDataError

HELD_OUT_PERCENT = 10
"""Share of dialogues on which nothing is trained and no scale is fitted. Chosen."""
VALIDATION_PERCENT = 10
"""Share of the other dialogues on which a step is chosen. As Ghazarian et al. 2020: 2,100 beside 22,000. Specified."""
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
    for each, digest in _digest(exchanges):
        share = int.from_bytes(digest[:4], "big") % 100
        parts[Part.HELD_OUT if share < HELD_OUT_PERCENT else Part.TRAIN].append(each)
    return parts


def split_validation(exchanges: Iterable[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
    """Those to train on, and those to choose a step by; a dialogue stays whole, and with its copies."""
    kept: list[Exchange] = []
    validation: list[Exchange] = []
    for each, digest in _digest(exchanges):
        share = int.from_bytes(digest[4:8], "big") % 100
        (validation if share < VALIDATION_PERCENT else kept).append(each)
    return kept, validation


def _digest(exchanges: Iterable[Exchange]) -> Iterator[tuple[Exchange, bytes]]:
    first: dict[str, bytes] = {}
    for each in exchanges:
        if each.dialogue not in first:
            first[each.dialogue] = hashlib.sha256(normalize(each.query).encode()).digest()
        yield each, first[each.dialogue]
