"""Intraclass correlation and Krippendorff's alpha of items by raters, with intervals from resampled items.

ICC comes from variance components by the method of moments (Henderson's first), which gives the analysis of variance
exactly where every rater rated every item, and still an estimate where cells are missing. Alpha is 1 - observed over
expected disagreement, for any number of raters, gaps, and four scales: nominal, ordinal and interval disagreement have
closed forms; ratio compares every two distinct values.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import DRAWS_AT_ONCE, Floats, Interval, draw_counts, find_interval


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

    Items and raters without a rating are left out.
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
    resampled = np.concatenate(
        [_measure_drawn_intraclass(ratings, counts) for counts in draw_counts(len(ratings), rounds, seed)]
    )
    names = ("consistency", "consistency_of_mean", "agreement", "agreement_of_mean")
    return {name: find_interval(getattr(found, name), resampled[:, place]) for place, name in enumerate(names)}


def _measure_drawn_intraclass(ratings: Floats, counts: Floats) -> Floats:
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


AlphaScale = Literal["nominal", "ordinal", "interval", "ratio"]
SCALES: tuple[AlphaScale, ...] = get_args(AlphaScale)

MOST_RATIO_VALUES = 500
"""Most distinct values, which are compared two by two in every resample. Chosen: five sliders of 0 to 100."""


def measure_alpha(ratings: Floats, scale: AlphaScale) -> float:
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


def bound_alpha(ratings: Floats, scale: AlphaScale, rounds: int, seed: int) -> Interval:
    """Alpha with its interval from resampled items."""
    value = measure_alpha(ratings, scale)
    rated = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    given = ~np.isnan(rated)
    values, codes = np.unique(rated[given], return_inverse=True)
    cells = sparse.csr_array((np.ones(len(codes)), (np.nonzero(given)[0], codes)), shape=(len(rated), len(values)))
    cells.sum_duplicates()
    counted = draw_counts(len(rated), rounds, seed)
    return find_interval(
        value, np.concatenate([_measure_drawn_alpha(cells, values, scale, counts) for counts in counted])
    )


def _measure_drawn_alpha(cells: Any, values: Floats, scale: AlphaScale, counts: Floats) -> Floats:
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
