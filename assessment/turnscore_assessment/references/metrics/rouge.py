"""ROUGE-L as coco-caption computes it: the longest common subsequence, F with beta 1.2 (Lin 2004)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from turnscore_assessment.references.comparisons import Floats
from turnscore_assessment.references.metrics.metric import Group, Pair
from turnscore_assessment.references.tokenisation import Tokens, find_tokenisation

_BETA = 1.2
"""Specified: coco-caption's."""
_KEPT_TEXTS = 4096


class RougeL:
    name = "rouge-l"
    definition = (
        "ROUGE-L of coco-caption: precision and recall of the longest common subsequence, F with beta 1.2; "
        "joint: precision and recall maximised over references apart from each other"
    )

    def __init__(self, tokenisation: str = "blanks") -> None:
        self.tokenisation = tokenisation
        self._tokenise = lru_cache(_KEPT_TEXTS)(find_tokenisation(tokenisation))

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One F per pair."""
        return self.compare_jointly([(hypothesis, (reference,)) for hypothesis, reference in pairs])

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One F per hypothesis, of the best precision and the best recall over its references."""
        return np.array([self._compare(*group) for group in groups])

    def _compare(self, hypothesis: str, references: Sequence[str]) -> float:
        own = self._tokenise(hypothesis)
        precision = recall = 0.0
        for reference in references:
            words = self._tokenise(reference)
            common = count_common_subsequence(own, words)
            precision, recall = max(precision, common / len(own)), max(recall, common / len(words))
        if not precision or not recall:
            return 0.0
        return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def count_common_subsequence(left: Tokens, right: Tokens) -> int:
    """Words in the longest common subsequence, by one bit per word of `left` (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(left):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(left)) - 1
    row = every
    for word in right:
        matched = row & places.get(word, 0)
        row = (row + matched | row - matched) & every
    return len(left) - row.bit_count()
