"""Correlation with people's ratings: Pearson and Spearman with intervals over contexts.

Rows of one context depend on each other, so that a round of the bootstrap draws contexts, each with all of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.agreement.bootstrap import draw_dialogues, resample_pearson, resample_spearman
from turnscore_assessment.agreement.statistics import compute_pearson, compute_spearman
from turnscore_assessment.figures import ROUNDS, Floats, Interval, find_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One column's correlations with the ratings; NaN where a side is constant."""

    rows: int
    contexts: int
    pearson: Interval
    spearman: Interval


def correlate(scores: Floats, ratings: Floats, contexts: Sequence[str], rounds: int = ROUNDS) -> Agreement:
    """Both correlations, each with its interval; fewer than three contexts give no interval."""
    numbers = np.unique(np.asarray(contexts), return_inverse=True)[1]
    count = int(numbers.max()) + 1
    columns, draws = np.stack([scores, ratings]), draw_dialogues(count, rounds, seed=0)
    return Agreement(
        rows=len(scores),
        contexts=count,
        pearson=find_interval(compute_pearson(scores, ratings), resample_pearson(columns, numbers, draws)[:, 0, 1]),
        spearman=find_interval(compute_spearman(scores, ratings), resample_spearman(columns, numbers, draws)[:, 0, 1]),
    )
