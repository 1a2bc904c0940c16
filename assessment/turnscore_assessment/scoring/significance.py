"""Significance: which systems are better than which, as published and corrected for the number of pairs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats

from turnscore_assessment.figures import Floats, Interval
from turnscore_assessment.scoring.corrections import correct_benjamini_hochberg, correct_holm

Outcome = Literal["better", "worse", "none"]
THRESHOLDS = (0.1, 0.05)
"""Those that the published figure and text use."""
TIE_DIGITS = 12
"""Digits that are compared. Chosen: float64 keeps sixteen, of which a mean over criteria loses one or two."""


@dataclass(frozen=True, kw_only=True)
class ComparedPair:
    """Two systems, the first one with the higher mean; every p is of Mann-Whitney's U on means over criteria."""

    first: str
    second: str
    difference: Interval
    p_better: float
    """One-sided: the first system's dialogues are rated higher. As published: neither corrected nor clustered."""
    p_worse: float
    p_two_sided: float
    p_holm: float
    """Two-sided, corrected so that one false difference among all pairs is unlikely."""
    p_benjamini_hochberg: float
    """Two-sided, corrected so that few of the differences found are false."""

    def outcome(self, threshold: float) -> Outcome:
        """What the published test says of the first system at this p."""
        if self.p_better < threshold:
            return "better"
        return "worse" if self.p_worse < threshold else "none"


def compare_pairs(
    values: Mapping[str, Floats], order: Sequence[str], differences: Mapping[tuple[str, str], Interval]
) -> list[ComparedPair]:
    """Every pair of systems; `values`: one number per dialogue; `order`: best first; `differences`: its pairs."""
    pairs = list(combinations(order, 2))
    tests = {
        kind: [compare_ranks(values[first], values[second], kind) for first, second in pairs]
        for kind in ("greater", "less", "two-sided")
    }
    holm, hochberg = correct_holm(tests["two-sided"]), correct_benjamini_hochberg(tests["two-sided"])
    return [
        ComparedPair(
            first=pair[0],
            second=pair[1],
            difference=differences[pair],
            p_better=tests["greater"][number],
            p_worse=tests["less"][number],
            p_two_sided=tests["two-sided"][number],
            p_holm=float(holm[number]),
            p_benjamini_hochberg=float(hochberg[number]),
        )
        for number, pair in enumerate(pairs)
    ]


def compare_ranks(left: Floats, right: Floats, alternative: str) -> float:
    """Mann-Whitney's p. Values that differ by less than 1e-12 of the largest are ties.

    Means of the same ratings in another order differ by rounding, and p then moved by up to 9e-4.
    """
    largest = float(max(np.abs(left).max(), np.abs(right).max()))
    decimals = TIE_DIGITS - math.ceil(math.log10(largest)) if largest else 0
    rounded = np.round(left, decimals), np.round(right, decimals)
    return float(stats.mannwhitneyu(*rounded, alternative=alternative, method="auto").pvalue)
