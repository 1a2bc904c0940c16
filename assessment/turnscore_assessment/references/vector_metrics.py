"""Metrics of vectors: the cosine by a sentence encoder, embedding average, vector extrema and greedy matching.

Word vectors (Liu et al. 2016; Forgues et al. 2014) come from a file in the text form of GloVe and word2vec: one word
and its numbers per line. A word without one takes the mean of all, as in nlg-eval. Only vectors of compared words are
kept.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import score_turns
from turnscore_models.manifest import BundleError
from turnscore_models.store import resolve

from turnscore_assessment.errors import MissingResourceError, ReferencesError
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import UNREADABLE, open_text
from turnscore_assessment.references.word_metrics import Metric, Pair, find_tokenisation

Vectors = NDArray[np.float32]

_PAIRS_AT_ONCE = 20_000  # Pairs whose vectors are compared together: 60 MB of them at 384 dimensions.


class SentenceEncoder(Protocol):
    """What makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model and its graph."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, in order."""


def make_encoder_cosine(encoder: SentenceEncoder | None) -> Metric:
    """The cosine, with an encoder's own tokens. Raises MissingResourceError without an encoder."""
    if encoder is None:
        raise MissingResourceError(
            "encoder needs a sentence encoder: name a bundle of kind encoder with --encoder "
            "(turnscore export encoder makes one), or other metrics with --metric"
        )

    def compare(pairs: Sequence[Pair]) -> Floats:
        """Each text is encoded once for all pairs that are compared together."""
        found = np.empty(len(pairs))
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            part = pairs[start : start + _PAIRS_AT_ONCE]
            places = {text: place for place, text in enumerate(dict.fromkeys(chain.from_iterable(part)))}
            vectors = encoder.encode(list(places))
            own, other = (vectors[[places[text] for text in side]] for side in zip(*part, strict=True))
            found[start : start + len(part)] = np.einsum("ij,ij->i", own, other, dtype=np.float64)
        return found

    definition = f"cosine of sentence vectors by {encoder.name}"
    return Metric(name="encoder", tokenisation="the encoder's own", definition=definition, compare=compare)


_KEPT_TEXTS = 4096
MOST_DIMENSIONS = 4096  # Most dimensions of a vector.


@dataclass(frozen=True, slots=True)
class ReferenceWordVectors:
    """Vectors by word, and the vector of every other word."""

    source: str
    known: Mapping[str, Floats]
    other: Floats

    def look_up(self, words: Sequence[str]) -> Floats:
        """A row per word."""
        return np.stack([self.known.get(word, self.other) for word in words])


def read_word_vectors(path: Path, wanted: Collection[str]) -> ReferenceWordVectors:
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
    return ReferenceWordVectors(path.name, known, total / count)


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


def _take_extrema(rows: Floats) -> Floats:
    places = np.abs(rows).argmax(axis=0)
    return np.asarray(rows[places, np.arange(rows.shape[1])])


def _greedy(own: Floats, other: Floats) -> float:
    cosines = _unit(own) @ _unit(other).T
    return float(cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


def _cosine_of(summarize: Callable[[Floats], Floats]) -> Callable[[Floats, Floats], float]:
    """The cosine of what is made of the words' vectors."""
    return lambda own, other: float(_unit(summarize(own)) @ _unit(summarize(other)))


_COMPARE: Final[Mapping[str, tuple[Callable[[Floats, Floats], float], str]]] = {
    "embedding-average": (_cosine_of(lambda rows: rows.sum(axis=0)), "cosine of the sums of word vectors"),
    "vector-extrema": (
        _cosine_of(_take_extrema),
        "cosine of the vectors that have, in each dimension, the value of largest magnitude",
    ),
    "greedy-matching": (_greedy, "mean over words of the best cosine, in both directions, averaged"),
}
WORD_VECTOR_METRICS: Final = tuple(_COMPARE)


def make_word_vector_metric(name: str, vectors: ReferenceWordVectors | None, tokenisation: str = "blanks") -> Metric:
    """One of the three metrics, -1 to 1. Raises MissingResourceError without vectors."""
    if vectors is None:
        raise MissingResourceError(f"{name} needs word vectors: name a file of them with --word-vectors")
    compare, sentence = _COMPARE[name]
    tokenise = find_tokenisation(tokenisation)
    read = lru_cache(_KEPT_TEXTS)(lambda text: vectors.look_up(tokenise(text)))
    return Metric(
        name=name,
        tokenisation=tokenisation,
        definition=f"{sentence}; vectors of {vectors.source}, a word without one takes the mean of all",
        compare=lambda pairs: np.array([compare(read(own), read(other)) for own, other in pairs]),
    )


class BundleEncoder:
    """A bundle's vectors. Keeps no text and no vector."""

    def __init__(self, reference: str, threads: int = 1) -> None:
        """`reference` is a bundle's folder, or its name in the model store.

        Raises MissingResourceError for what is not a bundle, is refused, or is of another kind.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            bundle = resolve(reference)
            if (kind := bundle.manifest.kind) != "encoder":
                raise MissingResourceError(f"{reference} is a bundle of kind {kind}, not encoder")
            loaded = load_scorer(bundle, choose_variant(bundle), threads=threads)
        except BundleError as error:
            raise MissingResourceError(str(error)) from None
        self.name = f"{bundle.manifest.reference} ({loaded.variant}, {bundle.digest[:12]})"
        self._loaded = loaded

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, in order; texts of like length are computed together."""
        vectors = np.zeros((len(texts), self._loaded.scorer.vector_width), np.float32)
        for place, raw in enumerate(score_turns(self._loaded, [TurnToScore([], text) for text in texts])):
            vectors[place] = np.frombuffer(raw.vector or b"", np.float32)
        return vectors
