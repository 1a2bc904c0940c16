"""A corpus of replies, from which a degraded system draws. Knows no study."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from turnscore_assessment.degradation.distortion import count_replaced, distort
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.spoken_dialogues import SYSTEM, USER, read_dialogues

LEAST_DIALOGUES = 3
"""Fewest dialogues: the degraded one, the reply's and the donor's. Specified."""
MOST_REPLIES = 1_000_000
"""Most replies. Chosen: more than any study has, within a few hundred MB."""
TRIES = 1000
"""Replies that are tried as a long enough donor. Chosen: with as few as 1 % long ones it fails once in 20,000 times;
the longest one seen is then taken."""


@dataclass(frozen=True)
class ReplyCorpus:
    """Replies and their dialogues; ValueError for fewer than three dialogues."""

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
    for dialogue in read_dialogues(path):
        for (before, _), (speaker, text) in pairwise(dialogue.turns):
            if speaker == SYSTEM and before == USER and text.strip():
                replies.append(text)
                dialogue_of.append(dialogue.line)
        if len(replies) > MOST_REPLIES:
            raise BadFileError(path, dialogue.line, f"the corpus has more than {MOST_REPLIES:,} replies")
    if len(set(dialogue_of)) < LEAST_DIALOGUES:
        raise BadFileError(path, 0, "a corpus needs three dialogues in which the system answers the user")
    return ReplyCorpus(replies, dialogue_of)


def _lengthen(donor: Sequence[str], span: int) -> list[str]:
    """A donor that is repeated where none was long enough."""
    return [*donor] * max(1, -(-span // max(len(donor), 1)))
