"""Traffic: seeded turns of exact length in tokens, never the same text twice. Knows no server."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPECIAL_TOKENS = 4
"""Of a turn's two rows: [CLS] and [SEP] each."""
_LEAST_WORDS = 2
"""Of a text; one word alone would soon come twice."""


@dataclass(frozen=True, slots=True)
class BenchTurn:
    """What the user said and what the system answered."""

    query: str
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthMix:
    """Tokens of a turn, both rows and their special tokens together: drawn evenly on a logarithmic scale."""

    name: str
    least: int
    most: int
    turns_factor: float
    """How many turns are sent of it, the mixed lengths' being 1: long ones take longer."""

    def draw(self, count: int, chance: random.Random) -> list[int]:
        """The tokens of each turn: evenly spaced quantiles, shuffled, so that every sample has the same mean."""
        ratio = self.most / self.least
        lengths = [round(self.least * ratio ** ((place + 0.5) / count)) for place in range(count)]
        chance.shuffle(lengths)
        return lengths


LENGTH_MIXES = {
    mix.name: mix
    for mix in (
        LengthMix(name="short", least=8, most=24, turns_factor=2),
        LengthMix(name="mixed", least=8, most=256, turns_factor=1),
        LengthMix(name="long", least=224, most=256, turns_factor=0.5),
    )
}
"""256 tokens are two rows of 128: all that the starter bundle's model takes."""


class Traffic:
    """Turns made of words that are one token each. One object gives no text twice."""

    def __init__(self, tokenizer_file: Path, row_limit: int) -> None:
        """`row_limit` is the most tokens of a row, special ones included."""
        self._words = read_words(tokenizer_file)
        self._row_limit = row_limit
        self._given: set[str] = set()
        self._chance = random.Random(0)

    def turns(self, mix: LengthMix, count: int) -> list[BenchTurn]:
        """Fresh turns; those of two calls with the same arguments have the same lengths, in the same order."""
        shape = random.Random(f"{mix.name} {count}")
        return [self._turn(tokens - SPECIAL_TOKENS, shape) for tokens in mix.draw(count, shape)]

    def _turn(self, words: int, shape: random.Random) -> BenchTurn:
        """A turn of that many words, of which the query has between three and seven tenths."""
        most = min(words - _LEAST_WORDS, self._row_limit - 2)
        query = min(max(round(words * shape.uniform(0.3, 0.7)), _LEAST_WORDS, words - self._row_limit + 2), most)
        return BenchTurn(self._text(query), self._text(words - query))

    def _text(self, words: int) -> str:
        while (text := " ".join(self._chance.choices(self._words, k=words))) in self._given:
            pass
        self._given.add(text)
        return text


def read_words(tokenizer_file: Path) -> Sequence[str]:
    """The whole words of a BERT tokenizer's vocabulary: lower-case ASCII letters, three and more."""
    vocabulary = json.loads(tokenizer_file.read_text(encoding="utf-8"))["model"]["vocab"]
    return [word for word in vocabulary if re.fullmatch("[a-z]{3,}", word)]
