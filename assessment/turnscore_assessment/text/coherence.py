"""Coherence: a response's distance in meaning from its context, times a penalty for dull ones (Dziri et al. 2018).

A distance, so lower is better: a good measure correlates negatively with people's ratings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from turnscore_assessment.text.dullness import DullPatterns

PenaltyForm = Literal["published", "released"]


class Encoder(Protocol):
    """What makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model and its graph."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A row of length 1 for each text, in order."""


@dataclass(frozen=True, kw_only=True)
class Coherence:
    """The distance and its factors."""

    cosine: float
    penalty: float

    @property
    def distance(self) -> float:
        """penalty * (1 - cosine)."""
        return self.penalty * (1 - self.cosine)


def find_penalty(response: str, patterns: DullPatterns, form: PenaltyForm = "published") -> float:
    """1 + log10((2 + L') / (2 + L'')) with L' content words, L'' of them not dull: 1 and more, more for dull ones.

    `released` is the script of Santhanam and Shaikh (2019), which inverts the fraction and so rewards dullness.
    """
    ratio = (2 + patterns.count_content(response)) / (2 + patterns.count_lively(response))
    return 1 + math.log10(ratio if form == "published" else 1 / ratio)


def measure_coherence(
    pairs: Sequence[tuple[str, str]], encoder: Encoder, patterns: DullPatterns, form: PenaltyForm = "published"
) -> list[Coherence]:
    """The coherence of every pair of context and response; each text is encoded once."""
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    vectors = encoder.encode(texts)
    place = {text: number for number, text in enumerate(texts)}
    return [
        Coherence(
            cosine=float(np.dot(vectors[place[context]], vectors[place[response]])),
            penalty=find_penalty(response, patterns, form),
        )
        for context, response in pairs
    ]
