"""Intraclass correlation of items by raters: consistency and agreement, of one rater and of the mean of k.

From variance components by the method of moments (Henderson's first), which gives the analysis of variance exactly
where every rater rated every item, and still an estimate where cells are missing.
"""

import math
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, draw_counts, find_interval


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
    resampled = np.concatenate([_measure_drawn(ratings, counts) for counts in draw_counts(len(ratings), rounds, seed)])
    names = ("consistency", "consistency_of_mean", "agreement", "agreement_of_mean")
    return {name: find_interval(getattr(found, name), resampled[:, place]) for place, name in enumerate(names)}


def _measure_drawn(ratings: Floats, counts: Floats) -> Floats:
    """`measure_intraclass` of many resamples [resamples, 4]: all that it adds up is linear in how often items count."""
    given = ~np.isnan(ratings)
    values = np.where(given, ratings - np.nanmean(ratings), 0.0)
    own = given.sum(axis=1).astype(np.float64)
    inverse = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
    of_items = np.column_stack(
        [own, own > 0, own**2, inverse, values.sum(axis=1), (values**2).sum(axis=1), values.sum(axis=1) ** 2 * inverse]
    )
    sums, columns = counts @ values, counts @ given
    between_raters = np.divide(sums**2, columns, out=np.zeros_like(sums), where=columns > 0).sum(axis=1)
    of_raters = np.column_stack([between_raters, (columns > 0).sum(axis=1), (columns**2).sum(axis=1)])
    found = np.hstack([counts @ of_items, of_raters])
    total, items, squared, inverses, summed, squares, between_items, between_raters, raters, spread = found.T
    # Resamples without any variance have no figure, as where nothing varies; rounding must not make one.
    kept = (items >= 2) & (raters >= 2) & (squares - summed**2 / np.maximum(total, 1) > 1e-12 * squares)
    total, items, squared, inverses, summed, squares, between_items, between_raters, raters, spread = found[kept].T
    mean = summed**2 / total
    found_sums = np.column_stack([squares - mean, between_items - mean, between_raters - mean, np.zeros_like(mean)])
    expected = np.empty((len(total), 4, 4))
    expected[:] = total[:, None, None]
    expected[:, 1, 2] = expected[:, 1, 3] = items
    expected[:, 2, 1] = expected[:, 2, 3] = raters
    expected[:, 3, 1:] = np.column_stack([squared / total, spread / total, np.ones_like(total)])
    # Some designs leave components open: like lstsq, the pseudo-inverse takes the smallest ones.
    components = np.einsum("nij,nj->ni", np.linalg.pinv(expected, rcond=4 * np.finfo(np.float64).eps), found_sums)
    _, item, rater, error = components.T
    per_item = items / inverses
    with np.errstate(divide="ignore", invalid="ignore"):
        single = [np.where(lower != 0, item / lower, np.nan) for lower in (item + error, item + rater + error)]
        stepped = []
        for each in single:
            lower = 1 + (per_item - 1) * each
            stepped.append(np.where(lower != 0, per_item * each / lower, np.nan))
    return np.column_stack([single[0], stepped[0], single[1], stepped[1]])


def _divide(upper: float, lower: float) -> float:
    return upper / lower if lower and math.isfinite(lower) else math.nan
