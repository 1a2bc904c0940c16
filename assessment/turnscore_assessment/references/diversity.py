"""Diversity: how much a system varies what it says. All of it reads words alone, but for referenced diversity.

distinct-n    different n-grams / all n-grams (Li et al. 2016), over all that the system said; and the mean over rows
ead-n         different n-grams / those expected of so many draws (Liu et al. 2022), V the file's different n-grams
self-bleu-n   BLEU of each response of a row against the row's others, mean (Zhu et al. 2018); less is more diverse
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from turnscore_assessment.references.comparisons import Comparison, by_system
from turnscore_assessment.references.metrics.bleu import Bleu
from turnscore_assessment.references.tokenisation import Tokenise, Tokens, find_tokenisation

ORDERS: Final = (1, 2, 3)
SELF_BLEU_ORDERS: Final = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How diverse one system is; figures within rows are None where no row has two hypotheses."""

    system: str
    rows: int
    responses: int
    tokenisation: str
    distinct: Mapping[int, float]
    """distinct-n by n, over everything the system said."""
    expected_adjusted: Mapping[int, float]
    vocabulary: Mapping[int, int]
    """ead-n's V by n."""
    distinct_within_rows: Mapping[int, float] | None
    self_bleu: Mapping[int, float] | None


def measure_diversity(rows: Sequence[Comparison], tokenisation: str = "blanks") -> list[Diversity]:
    """One result per system."""
    tokenise = find_tokenisation(tokenisation)
    said = [tokenise(text) for row in rows for text in (*row.hypotheses, *row.references)]
    vocabulary = {order: len({ngram for words in said for ngram in find_ngrams(words, order)}) for order in ORDERS}
    return [_measure(system, own, vocabulary, tokenise, tokenisation) for system, own in by_system(rows).items()]


def _measure(
    system: str, rows: Sequence[Comparison], vocabulary: Mapping[int, int], tokenise: Tokenise, tokenisation: str
) -> Diversity:
    sets = [[tokenise(text) for text in row.hypotheses] for row in rows]
    said = [words for each in sets for words in each]
    several = [row.hypotheses for row in rows if len(row.hypotheses) > 1]
    within = [[tokenise(text) for text in texts] for texts in several]
    return Diversity(
        system=system,
        rows=len(rows),
        responses=len(said),
        tokenisation=tokenisation,
        distinct={order: distinct(said, order) for order in ORDERS},
        expected_adjusted={order: adjusted_distinct(said, order, vocabulary[order]) for order in ORDERS},
        vocabulary=vocabulary,
        distinct_within_rows=(
            {order: float(np.mean([distinct(each, order) for each in within])) for order in ORDERS} if several else None
        ),
        self_bleu=self_bleu(several, tokenisation) if several else None,
    )


def distinct(texts: Sequence[Tokens], order: int) -> float:
    """Different n-grams / all n-grams; 0 where there is none."""
    ngrams = [ngram for words in texts for ngram in find_ngrams(words, order)]
    return len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def adjusted_distinct(texts: Sequence[Tokens], order: int, vocabulary: int) -> float:
    """Different n-grams / those expected of as many draws from `vocabulary` equally likely ones; 0 where there is none.

    May be more than 1: of a vocabulary whose members stand once each.
    """
    ngrams = [ngram for words in texts for ngram in find_ngrams(words, order)]
    if not ngrams:
        return 0.0
    expected = -vocabulary * float(np.expm1(len(ngrams) * np.log1p(-1 / vocabulary))) if vocabulary > 1 else 1.0
    return len(set(ngrams)) / expected


def self_bleu(sets: Sequence[Sequence[str]], tokenisation: str = "blanks") -> dict[int, float]:
    """self-BLEU by order: the mean over sets of two or more texts of a text's BLEU against the set's others."""
    bleu = Bleu(max(SELF_BLEU_ORDERS), tokenisation)
    means = np.zeros(len(SELF_BLEU_ORDERS))
    for texts in sets:
        for place, text in enumerate(texts):
            counts = bleu.count(text, [*texts[:place], *texts[place + 1 :]])
            means += [counts.score(order) / len(texts) for order in SELF_BLEU_ORDERS]
    return dict(zip(SELF_BLEU_ORDERS, (means / len(sets)).tolist(), strict=True))


def find_ngrams(words: Tokens, order: int) -> Iterator[Tokens]:
    return zip(*(words[start:] for start in range(order)), strict=False)
