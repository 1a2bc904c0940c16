"""Metrics of word vectors: embedding average, vector extrema, greedy matching (Liu et al. 2016; Forgues et al. 2014).

Vectors come from a file in the text form of GloVe and word2vec: one word and its numbers per line. A word without one
takes the mean of all, as in nlg-eval. Only vectors of compared words are kept.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from turnscore_assessment.files import UNREADABLE, open_text
from turnscore_assessment.references.comparisons import Floats
from turnscore_assessment.references.errors import MissingResourceError, ReferencesError
from turnscore_assessment.references.metrics.metric import Pair
from turnscore_assessment.references.tokenisation import find_tokenisation

_KEPT_TEXTS = 4096
MOST_DIMENSIONS = 4096
"""Most dimensions of a vector. Chosen."""


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Vectors by word, and the vector of every other word."""

    source: str
    known: Mapping[str, Floats]
    other: Floats

    def look_up(self, words: Sequence[str]) -> Floats:
        """A row per word."""
        return np.stack([self.known.get(word, self.other) for word in words])


def read_word_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """The vectors of `wanted`, and the mean of the whole file. Raises ReferencesError for a wrong line."""
    known: dict[str, Floats] = {}
    total: Floats | None = None
    count = 0
    for place, (word, vector) in enumerate(_read_vectors(path), start=1):
        if total is None:
            total = np.zeros_like(vector)
        if len(vector) != len(total):
            raise ReferencesError(f"{path}: vector {place} has {len(vector)} numbers, the first one {len(total)}")
        total += vector
        count += 1
        if word in wanted:
            known[word] = vector
    if total is None:
        raise ReferencesError(f"{path}: must have at least one vector")
    return WordVectors(path.name, known, total / count)


def split_line(cells: Sequence[str], width: int) -> tuple[str, Sequence[str]]:
    """A line's word and its numbers, where vectors have so many; 0 where that is not known yet.

    GloVe's largest files have words with blanks, such as `. . .`: no later part of them is a number.
    """
    words = cells[:-width] if width else cells[:1]
    if len(words) < 2 or any(map(_is_number, words[1:])):
        return cells[0], cells[1:]
    return " ".join(words), cells[-width:]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_vectors(path: Path) -> Iterator[tuple[str, Floats]]:
    width = 0
    for number, line in enumerate(_read_text(path), start=1):
        word, numbers = split_line(line.rstrip().split(" "), width)
        if number == 1 and len(numbers) == 1:
            continue  # word2vec's first line: the number of words, their width
        try:
            vector = np.array(numbers, dtype=np.float64)
        except ValueError:
            raise ReferencesError(f"{path}, line {number}: must be a word and its numbers") from None
        if not 1 < len(vector) <= MOST_DIMENSIONS or not np.isfinite(vector).all():
            raise ReferencesError(f"{path}, line {number}: must be a word and its numbers")
        width = len(vector)
        yield word, vector


def _read_text(path: Path) -> Iterator[str]:
    try:
        with open_text(path) as lines:
            yield from lines
    except (OSError, *UNREADABLE) as error:
        raise ReferencesError(f"{path} cannot be read: {error}") from None


def _average(own: Floats, other: Floats) -> float:
    return _cosine(own.sum(axis=0), other.sum(axis=0))


def _extrema(own: Floats, other: Floats) -> float:
    return _cosine(_take_extrema(own), _take_extrema(other))


def _take_extrema(rows: Floats) -> Floats:
    places = np.abs(rows).argmax(axis=0)
    return np.asarray(rows[places, np.arange(rows.shape[1])])


def _greedy(own: Floats, other: Floats) -> float:
    cosines = _unit(own) @ _unit(other).T
    return float(cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


def _cosine(left: Floats, right: Floats) -> float:
    return float(_unit(left) @ _unit(right))


_COMPARE: Final[Mapping[str, tuple[Callable[[Floats, Floats], float], str]]] = {
    "embedding-average": (_average, "cosine of the sums of word vectors"),
    "vector-extrema": (_extrema, "cosine of the vectors that have, in each dimension, the value of largest magnitude"),
    "greedy-matching": (_greedy, "mean over words of the best cosine, in both directions, averaged"),
}
NAMES: Final = tuple(_COMPARE)


class WordVectorMetric:
    """One of the three metrics."""

    def __init__(self, name: str, vectors: WordVectors | None, tokenisation: str = "blanks") -> None:
        """Raises MissingResourceError without vectors."""
        if vectors is None:
            raise MissingResourceError(f"{name} needs word vectors: name a file of them with --word-vectors")
        self.name = name
        self.tokenisation = tokenisation
        self._compare, sentence = _COMPARE[name]
        self.definition = f"{sentence}; vectors of {vectors.source}, a word without one takes the mean of all"
        tokenise = find_tokenisation(tokenisation)
        self._read = lru_cache(_KEPT_TEXTS)(lambda text: vectors.look_up(tokenise(text)))

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One number per pair, -1 to 1."""
        return np.array([self._compare(self._read(own), self._read(other)) for own, other in pairs])
