"""The cosine of two texts' vectors by a sentence encoder: the default metric, also in place of two older ones."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from turnscore_assessment.references.comparisons import Floats
from turnscore_assessment.references.errors import MissingResourceError
from turnscore_assessment.references.metrics.metric import Pair

Vectors = NDArray[np.float32]

_PAIRS_AT_ONCE = 8192
"""Pairs whose vectors are compared together: 25 MB of them at 384 dimensions. Chosen."""
_TEXTS_AT_ONCE = 200_000
"""Texts whose vectors are kept together: 300 MB at 384 dimensions. Chosen."""
UNOBTAINABLE: Final = {"skip-thought": "Skip-Thought", "gensen": "GenSen"}
"""Encoders of the paper whose models cannot be had, by the name of their metric."""


class Encoder(Protocol):
    """What makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model and its graph."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, in order."""


class EncoderCosine:
    """The cosine, with an encoder's own tokens."""

    tokenisation = "the encoder's own"

    def __init__(self, encoder: Encoder | None, name: str = "encoder") -> None:
        """Raises MissingResourceError without an encoder."""
        if encoder is None:
            raise MissingResourceError(
                f"{name} needs a sentence encoder: name a bundle of kind encoder with --encoder "
                "(turnscore-export encoder makes one), or other metrics with --metric"
            )
        self.name = name
        self.definition = f"cosine of sentence vectors by {encoder.name}"
        if name in UNOBTAINABLE:
            self.definition += f", in place of {UNOBTAINABLE[name]}, whose model cannot be had"
        self._encoder = encoder

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One cosine per pair. Each text is encoded once for as many pairs as fit into memory."""
        found = np.empty(len(pairs))
        start = 0
        while start < len(pairs):
            places, end = _number_texts(pairs, start)
            found[start:end] = _take_cosines(self._encoder.encode(list(places)), places, pairs[start:end])
            start = end
        return found


def _number_texts(pairs: Sequence[Pair], start: int) -> tuple[dict[str, int], int]:
    """Each text from pair `start` on with its index, and the pair at which there are enough."""
    places: dict[str, int] = {}
    for end in range(start, len(pairs)):
        if len(places) >= _TEXTS_AT_ONCE:
            return places, end
        for text in pairs[end]:
            places.setdefault(text, len(places))
    return places, len(pairs)


def _take_cosines(vectors: Vectors, places: Mapping[str, int], pairs: Sequence[Pair]) -> Floats:
    own = np.fromiter((places[text] for text, _ in pairs), np.intp, len(pairs))
    other = np.fromiter((places[text] for _, text in pairs), np.intp, len(pairs))
    cosines = np.empty(len(pairs))
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        cosines[part] = np.einsum("ij,ij->i", vectors[own[part]], vectors[other[part]], dtype=np.float64)
    return cosines
