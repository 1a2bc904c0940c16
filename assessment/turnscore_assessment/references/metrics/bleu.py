"""BLEU-n, per sentence and pooled over a corpus: Papineni et al. 2002, smoothed as the papers' code smooths it.

Per sentence: BP * exp(mean of ln p_k, k = 1..n). Counts are clipped by the references together; of several references
the one nearest in length makes the brevity penalty. A p_k of 0 becomes 0.1 / its denominator (smoothing method 1 of
Chen and Cherry 2014), but a hypothesis that shares no word scores 0. NLTK's `sentence_bleu` and `corpus_bleu` with
`SmoothingFunction().method1` give the same, which a test holds; this is some ten times as fast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from turnscore_assessment.references.comparisons import Floats
from turnscore_assessment.references.metrics.metric import Group, Pair
from turnscore_assessment.references.tokenisation import Tokens, find_tokenisation

_EPSILON = 0.1
"""Of smoothing method 1. Specified: NLTK's default."""
_KEPT_TEXTS = 4096
"""Texts whose n-grams are cached. Chosen."""

NGrams = tuple[dict[Tokens, int], ...]
"""How often each n-gram occurs in a text, for n = 1, 2, ..."""


@dataclass(slots=True, kw_only=True)
class BleuCounts:
    """The counts that BLEU is computed from, for one hypothesis or summed over many."""

    order: int
    hypothesis_words: int = 0
    reference_words: int = 0
    matches: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.matches = self.matches or [0] * self.order
        self.totals = self.totals or [0] * self.order

    def add(self, other: "BleuCounts") -> None:
        """Adds another hypothesis's counts."""
        self.hypothesis_words += other.hypothesis_words
        self.reference_words += other.reference_words
        for place in range(self.order):
            self.matches[place] += other.matches[place]
            self.totals[place] += other.totals[place]

    def score(self, order: int | None = None) -> float:
        """BLEU, 0 to 1, of the highest order or of a lower one."""
        order = order or self.order
        if not self.matches[0]:
            return 0.0
        # The operations are NLTK's one by one, so that replies that tie there tie here and rank correlations agree.
        weight = 1 / order
        precisions = zip(self.matches[:order], self.totals[:order], strict=True)
        logs = math.fsum([weight * math.log((matched or _EPSILON) / total) for matched, total in precisions])
        is_brief = self.hypothesis_words <= self.reference_words
        brevity = math.exp(1 - self.reference_words / self.hypothesis_words) if is_brief else 1.0
        return brevity * math.exp(logs)


class Bleu:
    def __init__(self, order: int, tokenisation: str = "blanks") -> None:
        self.name = f"bleu-{order}"
        self.tokenisation = tokenisation
        self.definition = (
            f"BLEU, 1- to {order}-grams, equal weights, a precision of 0 becomes 0.1/denominator (method 1); "
            "joint: counts clipped by all references, nearest length"
        )
        self._order = order
        tokenise = find_tokenisation(tokenisation)
        self._read = lru_cache(_KEPT_TEXTS)(lambda text: _count_ngrams(tokenise(text), order))

    def compare(self, pairs: Sequence[Pair]) -> Floats:
        """One sentence BLEU per pair."""
        found = (self.count(hypothesis, (reference,)).score() for hypothesis, reference in pairs)
        return np.fromiter(found, np.float64, len(pairs))

    def compare_jointly(self, groups: Sequence[Group]) -> Floats:
        """One sentence BLEU per hypothesis, against all its references."""
        return np.array([self.count(*group).score() for group in groups])

    def compare_corpus(self, groups: Sequence[Group]) -> float:
        """BLEU of the summed counts of all hypotheses."""
        pooled = BleuCounts(order=self._order)
        for group in groups:
            pooled.add(self.count(*group))
        return pooled.score()

    def count(self, hypothesis: str, references: Sequence[str]) -> BleuCounts:
        """The counts of one hypothesis against its references."""
        own, length = self._read(hypothesis)
        read = [self._read(reference) for reference in references]
        nearest = min((known for _, known in read), key=lambda known: (abs(known - length), known))
        matches = [_overlap(counted, [ngrams[place] for ngrams, _ in read]) for place, counted in enumerate(own)]
        totals = [max(1, length - place) for place in range(self._order)]
        return BleuCounts(
            order=self._order, hypothesis_words=length, reference_words=nearest, matches=matches, totals=totals
        )


def _count_ngrams(words: Tokens, order: int) -> tuple[NGrams, int]:
    counted: list[dict[Tokens, int]] = []
    for size in range(1, order + 1):
        counts: dict[Tokens, int] = {}
        for ngram in zip(*(words[start:] for start in range(size)), strict=False):
            counts[ngram] = counts.get(ngram, 0) + 1
        counted.append(counts)
    return tuple(counted), len(words)


def _overlap(own: dict[Tokens, int], references: Sequence[dict[Tokens, int]]) -> int:
    """How many n-grams the references share, each clipped by the reference that has it most often."""
    matched = 0
    if len(references) == 1:
        [other] = references
        for ngram in own.keys() & other.keys():
            matched += min(own[ngram], other[ngram])
        return matched
    for ngram, count in own.items():
        matched += min(count, max(other.get(ngram, 0) for other in references))
    return matched
