"""A corpus of replies: what a degraded system draws from. Knows no study.

Rows are JSON lines with `turns`: objects with `speaker` and `text`, or plain texts, of which every second one is taken
for the system's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_assessment.degradation.distortion import count_replaced, distort
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.ratings.rating_file import read_lines

USER, SYSTEM = "user", "system"
LEAST_DIALOGUES = 3
"""The dialogue that is degraded, that of the reply and that of the donor. Specified."""
MOST_REPLIES = 1_000_000
"""Chosen: more than any study says, within a few hundred MB."""
TRIES = 1000
"""Replies that are looked at to find a donor long enough. Chosen: misses one with as few as 1 % long ones once in
20,000 times, and then the longest seen stands in."""

SpokenTurns = list[tuple[str, str]]


@dataclass(frozen=True)
class ReplyCorpus:
    """Replies and the dialogues that they come from; ValueError for fewer than three dialogues."""

    replies: Sequence[str]
    dialogue_of: Sequence[int]

    def __post_init__(self) -> None:
        if len(set(self.dialogue_of)) < LEAST_DIALOGUES:
            raise ValueError("a corpus needs replies of three dialogues, so that a donor is of another one")

    def draw(self, generator: np.random.Generator, other_than: int | None = None) -> str:
        """A degraded reply: a random one, with a span of it from another dialogue. Ignores what was said.

        Never a reply of the dialogue `other_than`.
        """
        place = self._pick(generator, {other_than})
        words = self.replies[place].split()
        span = count_replaced(len(words))
        donor: list[str] = []
        for _ in range(TRIES):
            found = self.replies[self._pick(generator, {other_than, self.dialogue_of[place]})].split()
            donor = max(donor, found, key=len)
            if len(donor) >= span:
                break
        return " ".join(distort(words, _lengthen(donor, span), generator))

    def _pick(self, generator: np.random.Generator, barred: set[int | None]) -> int:
        while True:
            place = int(generator.integers(0, len(self.replies)))
            if self.dialogue_of[place] not in barred:
                return place


def read_corpus(path: Path) -> ReplyCorpus:
    """The system's turns that answer something. BadFileError names the line and the field."""
    replies: list[str] = []
    dialogue_of: list[int] = []
    for number, turns in read_spoken(path):
        for (before, _), (speaker, text) in pairwise(turns):
            if speaker == SYSTEM and before == USER and text.strip():
                replies.append(text)
                dialogue_of.append(number)
        if len(replies) > MOST_REPLIES:
            raise BadFileError(path, number, f"the corpus has more than {MOST_REPLIES:,} replies")
    if len(set(dialogue_of)) < LEAST_DIALOGUES:
        raise BadFileError(path, 0, "a corpus needs three dialogues in which the system answers the user")
    return ReplyCorpus(replies, dialogue_of)


def read_spoken(path: Path) -> Iterator[tuple[int, SpokenTurns]]:
    """(line, turns) of every dialogue that has any; a turn is who speaks, and what."""
    for number, record in read_lines(path):
        turns = _read_turns(path, number, record.get("turns"))
        if turns:
            yield number, turns


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


def _lengthen(donor: Sequence[str], span: int) -> list[str]:
    """A donor said over and over, where no longer one was found."""
    return [*donor] * max(1, -(-span // max(len(donor), 1)))
