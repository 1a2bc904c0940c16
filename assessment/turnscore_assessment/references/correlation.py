"""Correlation with people's ratings: Pearson and Spearman with intervals over contexts.

Rows of one context depend on each other, so that a round of the bootstrap draws contexts, each with all of its rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from turnscore_assessment.references.comparisons import Floats

ROUNDS: Final = 1000
"""Of the bootstrap. Chosen: the ends of an interval move by less than .005 between seeds."""
CONFIDENCE: Final = 0.95
LEAST_CONTEXTS: Final = 3
"""Fewer say nothing of those not drawn; such figures get no interval. Chosen."""
_TINY = 1e-24
"""Share of a sum of squares below which a spread is rounding. Chosen: float64 leaves about 1e-30."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the ends of its interval of 95 %, NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one column goes with the ratings."""

    rows: int
    contexts: int
    pearson: Interval
    spearman: Interval


def correlate(scores: Floats, ratings: Floats, contexts: Sequence[str], rounds: int = ROUNDS) -> Agreement:
    """Both correlations, each with its interval. NaN where one side is constant or there are too few rows."""
    numbers = np.unique(np.asarray(contexts), return_inverse=True)[1]
    count = int(numbers.max()) + 1
    draws = np.random.default_rng(0).multinomial(
        count, np.full(count, 1 / count), rounds if count >= LEAST_CONTEXTS else 0
    )
    codes = [np.unique(column, return_inverse=True)[1] for column in (scores, ratings)]
    products, orders = [], []
    for drawn in draws:
        weights = drawn[numbers].astype(np.float64)
        products.append(_pearson(scores, ratings, weights))
        orders.append(_pearson(_ranks(codes[0], weights), _ranks(codes[1], weights), weights))
    every = np.ones(len(scores))
    return Agreement(
        rows=len(scores),
        contexts=count,
        pearson=_interval(pearson(scores, ratings), products),
        spearman=_interval(_pearson(_ranks(codes[0], every), _ranks(codes[1], every), every), orders),
    )


def pearson(left: Floats, right: Floats) -> float:
    """Pearson's r; NaN where a side is constant."""
    return _pearson(left, right, np.ones(len(left)))


def spearman(left: Floats, right: Floats) -> float:
    """Spearman's rho, ties averaged; NaN where a side is constant."""
    return pearson(stats.rankdata(left), stats.rankdata(right))


def _pearson(left: Floats, right: Floats, weights: Floats) -> float:
    total = weights.sum()
    x, y = left - left @ weights / total, right - right @ weights / total
    xx, yy = x * x @ weights, y * y @ weights
    if xx <= _TINY * (left * left @ weights) or yy <= _TINY * (right * right @ weights):
        return math.nan
    return float(x * y @ weights / math.sqrt(xx * yy))


def _ranks(codes: NDArray[np.intp], weights: Floats) -> Floats:
    """Ranks, ties averaged, where each row stands as often as its weight; `codes` number the values upwards."""
    counts = np.bincount(codes, weights)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[codes])


def _interval(value: float, resampled: Sequence[float]) -> Interval:
    kept = np.asarray(resampled)[~np.isnan(resampled)] if len(resampled) else np.zeros(0)
    if not len(kept):
        return Interval(value)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(kept, [tail, 100 - tail])
    return Interval(value, float(low), float(high))
