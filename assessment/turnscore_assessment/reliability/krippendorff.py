"""Krippendorff's alpha: 1 - observed over expected disagreement, for any number of raters, gaps, and four scales.

Nominal, ordinal and interval disagreement have closed forms; ratio compares every two distinct values.
"""

import math
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import DRAWS_AT_ONCE, Floats, Interval, draw_counts, find_interval

Scale = Literal["nominal", "ordinal", "interval", "ratio"]
SCALES: tuple[Scale, ...] = get_args(Scale)

MOST_RATIO_VALUES = 500
"""Most distinct values, which are compared two by two in every resample. Chosen: five sliders of 0 to 100."""


def measure_alpha(ratings: Floats, scale: Scale) -> float:
    """Alpha of a table with a row per item and a column per rater, NaN where there is no rating (Krippendorff 2011).

    Items that fewer than two rated say nothing and are left out. NaN where all ratings are one value. TooFewError where
    no item has two ratings, AssessmentError for negative values or too many distinct ones on a ratio scale.
    """
    given = ~np.isnan(ratings)
    table = ratings[given.sum(axis=1) >= 2]
    if not table.size:
        raise TooFewError("Krippendorff's alpha needs an item with two ratings; there is none")
    if scale == "nominal":
        observed, expected = _disagree_nominal(table)
    elif scale == "ratio":
        observed, expected = _disagree_ratio(table)
    else:
        observed, expected = _disagree_squared(_rank(table) if scale == "ordinal" else table)
    return float(1 - observed / expected) if expected > 0 else math.nan


def bound_alpha(ratings: Floats, scale: Scale, rounds: int, seed: int) -> Interval:
    """Alpha with its interval from resampled items."""
    value = measure_alpha(ratings, scale)
    rated = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    given = ~np.isnan(rated)
    values, codes = np.unique(rated[given], return_inverse=True)
    cells = sparse.csr_array((np.ones(len(codes)), (np.nonzero(given)[0], codes)), shape=(len(rated), len(values)))
    cells.sum_duplicates()
    counted = draw_counts(len(rated), rounds, seed)
    return find_interval(value, np.concatenate([_measure_drawn(cells, values, scale, counts) for counts in counted]))


def _measure_drawn(cells: Any, values: Floats, scale: Scale, counts: Floats) -> Floats:
    """Alpha of many resamples. `cells` says how often each value was given to each item, `counts` how often [resamples,
    items] each item was drawn: both kinds of disagreement are sums over these."""
    own = np.asarray(cells.sum(axis=1))
    totals = np.asarray((cells.T @ counts.T).T)
    total = totals.sum(axis=1)
    if scale in ("nominal", "ratio"):
        if scale == "ratio":
            distances = _measure_ratios(values)
            # A dense row per item: some thousands of items at once, as there may be millions.
            step = max(1, DRAWS_AT_ONCE // len(values))
            parts = (cells[start : start + step].toarray() for start in range(0, len(own), step))
            within = np.concatenate([((part @ distances) * part).sum(axis=1) for part in parts])
            among = ((totals @ distances) * totals).sum(axis=1)
        else:
            within = own**2 - np.asarray(cells.power(2).sum(axis=1))
            among = total**2 - (totals**2).sum(axis=1)
        observed = counts @ (within / (own - 1))
    else:
        # Ordinal places are those of the resample's own values; they are centred, so that squares keep their digits.
        places = np.broadcast_to(values - values.mean(), totals.shape)
        if scale == "ordinal":
            places = np.cumsum(totals, axis=1) - totals / 2 - total[:, None] / 2
        sums, squares = (np.asarray(cells @ each.T) for each in (places, places**2))
        within = (own[:, None] * squares - sums**2) / (own[:, None] - 1)
        observed = np.einsum("ni,in->n", counts, within)
        among = total * (totals * places**2).sum(axis=1) - (totals * places).sum(axis=1) ** 2
    expected = among / (total - 1)
    is_defined = (totals > 0).sum(axis=1) > 1
    ratios = np.divide(observed, expected, out=np.full_like(total, np.nan), where=is_defined & (expected > 0))
    return np.asarray(1 - ratios)


def _rank(table: Floats) -> Floats:
    """Values as the mean of the places that they take among all: ordinal differences are differences of these."""
    _, codes, counts = np.unique(table[~np.isnan(table)], return_inverse=True, return_counts=True)
    places = np.cumsum(counts) - counts / 2
    ranked = np.full_like(table, np.nan)
    ranked[~np.isnan(table)] = places[codes]
    return ranked


def _disagree_squared(table: Floats) -> tuple[float, float]:
    """The mean squared difference within items and among all: both from variances."""
    counts = (~np.isnan(table)).sum(axis=1)
    total = counts.sum()
    within = (np.nanvar(table, axis=1) * counts**2 / (counts - 1)).sum() / total
    among = float(np.nanvar(table)) * total / (total - 1)
    return float(within), among


def _disagree_nominal(table: Floats) -> tuple[float, float]:
    values = np.unique(table[~np.isnan(table)])
    counts = (~np.isnan(table)).sum(axis=1)
    alike, totals = np.zeros(len(table)), np.empty(len(values))
    for number, value in enumerate(values):
        of_item = (table == value).sum(axis=1).astype(np.float64)
        alike += of_item**2
        totals[number] = of_item.sum()
    total = counts.sum()
    observed = ((counts**2 - alike) / (counts - 1)).sum() / total
    expected = (total**2 - (totals**2).sum()) / (total * (total - 1))
    return float(observed), float(expected)


def _disagree_ratio(table: Floats) -> tuple[float, float]:
    values, codes = np.unique(table[~np.isnan(table)], return_inverse=True)
    if values[0] < 0:
        raise AssessmentError(f"a ratio scale has no negative values, and {values[0]:g} is one")
    if len(values) > MOST_RATIO_VALUES:
        raise AssessmentError(f"a ratio scale takes at most {MOST_RATIO_VALUES} distinct values, not {len(values)}")
    distances = _measure_ratios(values)
    items, _ = np.nonzero(~np.isnan(table))
    counts = (~np.isnan(table)).sum(axis=1)
    totals = np.bincount(codes).astype(np.float64)
    observed = 0.0
    for item, own in enumerate(np.split(codes, np.searchsorted(items, np.arange(1, len(table))))):
        observed += float(distances[np.ix_(own, own)].sum()) / (counts[item] - 1)
    total = counts.sum()
    return observed / float(total), float(totals @ distances @ totals) / float(total * (total - 1))


def _measure_ratios(values: Floats) -> Floats:
    sums = np.add.outer(values, values)
    gaps = np.subtract.outer(values, values)
    return np.asarray(np.divide(gaps, sums, out=np.zeros_like(gaps), where=sums > 0) ** 2)
