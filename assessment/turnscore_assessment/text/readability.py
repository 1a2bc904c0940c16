"""Readability: Flesch's reading ease of English text. Rounds nothing; undefined without words."""

from collections.abc import Iterable
from dataclasses import dataclass

from turnscore_assessment.text.syllables import count_syllables
from turnscore_assessment.text.words import count_sentences, has_letter, split_words

RELIABLE_WORDS = 10
"""Fewest words for a reliable score: of fewer, a single long one moves it by ten points. Chosen."""


@dataclass(frozen=True)
class Readability:
    """The counts behind the score."""

    words: int
    sentences: int
    syllables: int

    @property
    def score(self) -> float | None:
        """206.835 - 1.015 words per sentence - 84.6 syllables per word (Flesch 1948); higher reads easier."""
        if not self.words:
            return None
        return 206.835 - 1.015 * self.words / self.sentences - 84.6 * self.syllables / self.words

    @property
    def is_reliable(self) -> bool:
        """Whether there are enough words for a reliable score."""
        return self.words >= RELIABLE_WORDS

    def __add__(self, other: "Readability") -> "Readability":
        return Readability(self.words + other.words, self.sentences + other.sentences, self.syllables + other.syllables)


def measure_readability(text: str) -> Readability:
    """Counts words, sentences and syllables. Numbers are not words: how they are read is unknown."""
    words = [word for word in split_words(text) if has_letter(word)]
    return Readability(len(words), count_sentences(text), sum(count_syllables(word) for word in words))


def add_up(parts: Iterable[Readability]) -> Readability:
    """The sum over several texts."""
    return sum(parts, Readability(0, 0, 0))
