"""Intraclass correlation of items by raters: consistency and agreement, of one rater and of the mean of k.

From variance components by the method of moments (Henderson's first), which gives the analysis of variance exactly
where every rater rated every item, and still an estimate where cells are missing.
"""

import math
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, find_interval


@dataclass(frozen=True, kw_only=True)
class Intraclass:
    """The four figures (McGraw and Wong 1996); NaN where nothing varies."""

    consistency: float
    """ICC(C,1): whether one rater orders and spaces items as another does."""
    consistency_of_mean: float
    """ICC(C,k) of the mean of all k raters."""
    agreement: float
    """ICC(A,1): whether one rater gives the same numbers as another."""
    agreement_of_mean: float
    """ICC(A,k)."""
    items: int
    raters: float
    """k: how many rated an item, the harmonic mean where that differs."""


def measure_intraclass(ratings: Floats) -> Intraclass:
    """Of a table with a row per item and a column per rater, NaN where there is no rating. TooFewError for no table.

    Items that nobody rated and raters who rated nothing are left out.
    """
    given = ~np.isnan(ratings)
    table = ratings[given.any(axis=1)][:, given.any(axis=0)]
    given = ~np.isnan(table)
    items, raters = table.shape
    if items < 2 or raters < 2:
        raise TooFewError(f"intraclass correlation needs two items and two raters; there are {items} and {raters}")
    per_item = float(items / (1 / given.sum(axis=1)).sum())
    item, rater, error = estimate_components(table)
    consistency = _divide(item, item + error)
    agreement = _divide(item, item + rater + error)
    return Intraclass(
        consistency=consistency,
        consistency_of_mean=step_up(consistency, per_item),
        agreement=agreement,
        agreement_of_mean=step_up(agreement, per_item),
        items=items,
        raters=per_item,
    )


def estimate_components(table: Floats) -> tuple[float, float, float]:
    """The variances between items, between raters, and of the rest; negative where chance has it so."""
    given = ~np.isnan(table)
    centred = np.where(given, table - np.nanmean(table), 0.0)
    rows, columns, total = given.sum(axis=1), given.sum(axis=0), float(given.sum())
    sums = np.array(
        [
            (centred**2).sum(),
            (centred.sum(axis=1) ** 2 / rows).sum(),
            (centred.sum(axis=0) ** 2 / columns).sum(),
            centred.sum() ** 2 / total,
        ]
    )
    # Expected sums: columns are the squared mean, the variances of items, of raters, and of the rest.
    expected = np.array(
        [
            [total, total, total, total],
            [total, total, len(rows), len(rows)],
            [total, len(columns), total, len(columns)],
            [total, (rows**2).sum() / total, (columns**2).sum() / total, 1.0],
        ]
    )
    found = np.linalg.lstsq(expected, sums, rcond=None)[0]
    return float(found[1]), float(found[2]), float(found[3])


def step_up(single: float, raters: float) -> float:
    """Spearman-Brown: the reliability of the mean of so many raters, from that of one."""
    return _divide(raters * single, 1 + (raters - 1) * single)


def bound_intraclass(ratings: Floats, rounds: int, seed: int) -> dict[str, Interval]:
    """The four figures with intervals from resampled items."""
    found = measure_intraclass(ratings)
    generator = np.random.default_rng(seed)
    resampled = []
    for _ in range(rounds):
        drawn = ratings[generator.integers(0, len(ratings), len(ratings))]
        try:
            resampled.append(measure_intraclass(drawn))
        except TooFewError:
            continue
    names = ("consistency", "consistency_of_mean", "agreement", "agreement_of_mean")
    return {name: find_interval(getattr(found, name), [getattr(each, name) for each in resampled]) for name in names}


def _divide(upper: float, lower: float) -> float:
    return upper / lower if lower and math.isfinite(lower) else math.nan
