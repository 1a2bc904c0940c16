"""What the papers' systems are trained on: exchanges, wrong replies, and judged turns kept out of training."""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from turnscore_assessment.data.dialogues import LabelledTurn, merge_turns, read_dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Floats
from turnscore_exporters.data.pairs import make_exchange
from turnscore_exporters.errors import ExporterError


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTurn:
    """A response to judge. `context` are the texts before it, oldest first."""

    context: tuple[str, ...]
    response: str
    references: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """What the response answers: the last text of the context that is not empty, or an empty one."""
        return next((text for text in reversed(self.context) if text.strip()), "")


class Baseline(Protocol):
    """A trained system. Each score depends on its own turn alone."""

    def score(self, asked: Sequence[EvalTurn]) -> dict[str, Floats]:
        """Scores by the variant's name, one per turn."""


@dataclass(frozen=True)
class PairJudge:
    """A trained system that judges each (query, response) by one number, its only score."""

    name: str
    judge: Callable[[Sequence[tuple[str, str]]], Floats]

    def score(self, asked: Sequence[EvalTurn]) -> dict[str, Floats]:
        return {self.name: self.judge([(each.query, each.response) for each in asked])}


HELD_OUT_PERCENT = 10  # Share of dialogues on which nothing is trained and no scale is fitted. Chosen.
# Share of the other dialogues on which a step is chosen. As Ghazarian et al. 2020: 2,100 and 22,000. Specified.
VALIDATION_PERCENT = 10
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The text's words and punctuation marks, in lower case."""
    return _WORD.findall(text.lower())


def normalize(text: str) -> str:
    """A key that equal texts share: their words alone, or their marks where they have no words."""
    words = split_words(text)
    return " ".join([word for word in words if word[0].isalnum()] or words)


def read_exchanges(path: Path, most: int, seed: int = 0) -> list[LabelledTurn]:
    """Exchanges of whole dialogues drawn at random, about `most` in all, equally many from each `source`.

    Raises BadFileError where the file cannot be read or has no two turns in a row.
    """
    by_source: dict[str, list[list[LabelledTurn]]] = {}
    for row, dialogue in enumerate(read_dialogues(path), start=1):
        turns = [turn.text.strip() for turn in merge_turns(dialogue.turns)]
        name = f"{path.name} {row}"
        found = [
            make_exchange(query, reply, dialogue=name)
            for query, reply in pairwise(turns)
            if split_words(query) and split_words(reply)
        ]
        if found:
            by_source.setdefault(dialogue.source, []).append(found)
    if not by_source:
        raise BadFileError(path, 0, "has no two turns in a row")
    share = -(-most // len(by_source))
    return [each for _, members in sorted(by_source.items()) for each in _draw(members, share, seed)]


def _draw(dialogues: Sequence[Sequence[LabelledTurn]], share: int, seed: int) -> list[LabelledTurn]:
    order = list(dialogues)
    random.Random(seed).shuffle(order)
    drawn: list[LabelledTurn] = []
    for exchanges in order:
        if len(drawn) >= share:
            break
        drawn += exchanges
    return drawn


def split_exchanges(
    exchanges: Iterable[LabelledTurn], percent: int = HELD_OUT_PERCENT, first_byte: int = 0
) -> tuple[list[LabelledTurn], list[LabelledTurn]]:
    """Those to train on, and about that percentage of others.

    A dialogue's first text alone decides, by four bytes of its hash: it is the same on every machine, and for copies.
    """
    shares: dict[str, int] = {}
    kept: list[LabelledTurn] = []
    others: list[LabelledTurn] = []
    for each in exchanges:
        if each.dialogue not in shares:
            digest = hashlib.sha256(normalize(each.query).encode()).digest()
            shares[each.dialogue] = int.from_bytes(digest[first_byte : first_byte + 4], "big") % 100
        (others if shares[each.dialogue] < percent else kept).append(each)
    return kept, others


def split_validation(exchanges: Iterable[LabelledTurn]) -> tuple[list[LabelledTurn], list[LabelledTurn]]:
    """Those to train on, and those to choose a step by."""
    return split_exchanges(exchanges, VALIDATION_PERCENT, first_byte=4)


TELLING_WORDS = 5  # A text of so many words is no common phrase. Chosen, as for the split of rated turns.


def without_judged(exchanges: Sequence[LabelledTurn], judged: Iterable[EvalTurn]) -> list[LabelledTurn]:
    """The exchanges of dialogues that share no long text with a judged turn's response, context or references."""
    known = {
        text
        for each in judged
        for text in map(normalize, (*each.context, each.response, *each.references))
        if len(text.split()) >= TELLING_WORDS
    }
    seen = {each.dialogue for each in exchanges if known & {normalize(each.query), normalize(each.response)}}
    return [each for each in exchanges if each.dialogue not in seen]


def true_references(response: str, references: Iterable[str]) -> tuple[str, ...]:
    """The references that differ from the response: an equal one would give any response the full score."""
    own = normalize(response)
    return tuple(each for each in references if each.strip() and normalize(each) != own)


TRIES = 50  # Random draws before the whole pool is searched. Chosen.
# Of weighted negatives. Specified: PONE takes 70 to 500 candidates and temperatures of .05 to .1.
CANDIDATES, TEMPERATURE = 100, 0.07

Vectors = NDArray[np.float32]


class RandomNegatives:
    """Draws for an exchange a reply that is certainly wrong for it, all with the same probability."""

    def __init__(self, exchanges: Sequence[LabelledTurn], seed: int = 0) -> None:
        self.exchanges = exchanges
        self._seed = seed
        self._queries = [normalize(each.query) for each in exchanges]
        self._replies = [normalize(each.response) for each in exchanges]
        self._fitting: dict[str, set[str]] = defaultdict(set)
        for query, reply in zip(self._queries, self._replies, strict=True):
            self._fitting[query].add(reply)

    def draw(self, index: int, epoch: int) -> int:
        """The index of an exchange whose reply is wrong for the exchange at `index`, another one in each epoch.

        Raises ExporterError where there is none.
        """
        return self._draw(index, self._generator(index, epoch))

    def is_wrong(self, index: int, other: int) -> bool:
        """Whether the reply at `other` is certainly wrong for the query at `index`."""
        return (
            self.exchanges[other].dialogue != self.exchanges[index].dialogue
            and self._replies[other] not in self._fitting[self._queries[index]]
            and self._replies[other] != self._queries[index]
        )

    def _generator(self, index: int, epoch: int) -> random.Random:
        return random.Random(f"{self._seed} {epoch} {index}")

    def _draw(self, index: int, generator: random.Random) -> int:
        for _ in range(TRIES):
            other = generator.randrange(len(self.exchanges))
            if self.is_wrong(index, other):
                return other
        wrong = [other for other in range(len(self.exchanges)) if self.is_wrong(index, other)]
        if not wrong:
            raise ExporterError(
                f"none of {len(self.exchanges)} exchanges has a wrong reply for {self.exchanges[index].query!r}: "
                "draw more dialogues"
            )
        return generator.choice(wrong)


class WeightedNegatives(RandomNegatives):
    """PONE's sampler: the softmax of their likeness to the true reply draws one of some candidates.

    Every second epoch draws at random instead, as PONE alternates.
    """

    def __init__(self, exchanges: Sequence[LabelledTurn], vectors: Vectors, seed: int = 0) -> None:
        """`vectors` [exchanges, width] are the replies', scaled to length 1."""
        super().__init__(exchanges, seed)
        self._vectors = vectors

    def draw(self, index: int, epoch: int) -> int:
        generator = self._generator(index, epoch)
        count = min(CANDIDATES, len(self.exchanges))
        drawn = [] if epoch % 2 else generator.sample(range(len(self.exchanges)), count)
        found = [each for each in drawn if self.is_wrong(index, each)]
        if not found:
            return self._draw(index, generator)
        likeness = np.asarray(self._vectors[found] @ self._vectors[index], dtype=np.float64)
        return generator.choices(found, weights=list(softmax(likeness / TEMPERATURE)))[0]
