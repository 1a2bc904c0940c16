"""Reliability: how far raters agree beyond chance, for each criterion of a study, or of a CSV of items by raters.

Intraclass correlation and Krippendorff's alpha have intervals from resampled items. ICC comes from variance components
by the method of moments (Henderson's first), which gives the analysis of variance exactly where every rater rated every
item, and still an estimate where cells are missing; a component below 0 counts as 0. Alpha is 1 - observed over
expected disagreement, for any number of raters, gaps, and four scales: nominal, ordinal and interval disagreement have
closed forms; ratio compares every two distinct values.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from turnscore_assessment.errors import AssessmentError, BadFileError, TooFewError
from turnscore_assessment.figures import (
    DRAWS_AT_ONCE,
    LEAST_DIALOGUES,
    Floats,
    Integers,
    Interval,
    draw_counts,
    find_interval,
)
from turnscore_assessment.files import read_csv
from turnscore_assessment.ratings.rating_file import OVERALL, build_table, read_ratings, standardize


@dataclass(frozen=True, kw_only=True)
class Intraclass:
    """The four figures (McGraw and Wong 1996), from 0 to 1; NaN where nothing varies."""

    consistency: float  # ICC(C,1): whether one rater orders and spaces items as another does.
    consistency_of_mean: float  # ICC(C,k) of the mean of all k raters.
    agreement: float  # ICC(A,1): whether one rater gives the same numbers as another.
    agreement_of_mean: float  # ICC(A,k).
    items: int
    raters: float  # k: how many rated an item, the harmonic mean where that differs.


_FIGURES = ("consistency", "consistency_of_mean", "agreement", "agreement_of_mean")


def measure_intraclass(ratings: Floats) -> Intraclass:
    """Of a table with a row per item and a column per rater, NaN where there is no rating. TooFewError for no table.

    Items and raters without a rating are left out.
    """
    given = ~np.isnan(ratings)
    own = given.sum(axis=1)
    items, raters = int((own > 0).sum()), int(given.any(axis=0).sum())
    if items < 2 or raters < 2:
        raise TooFewError(f"intraclass correlation needs two items and two raters; there are {items} and {raters}")
    found = _measure_drawn_intraclass(ratings, np.ones((1, len(ratings))))
    figures = found[0].tolist() if len(found) else [math.nan] * len(_FIGURES)
    named = dict(zip(_FIGURES, figures, strict=True))
    return Intraclass(**named, items=items, raters=float(items / (1 / own[own > 0]).sum()))


def step_up(single: float, raters: float) -> float:
    """Spearman-Brown: the reliability of the mean of so many raters, from that of one."""
    return _divide(raters * single, 1 + (raters - 1) * single)


def bound_intraclass(ratings: Floats, rounds: int, seed: int, units: Integers | None = None) -> dict[str, Interval]:
    """The four figures with intervals from resampled items, or from resampled `units`: their number for each item."""
    found = measure_intraclass(ratings)
    units = np.arange(len(ratings)) if units is None else units
    drawn = _draw_items(int(units.max()) + 1, rounds, seed)
    measured = [_measure_drawn_intraclass(ratings, counts[:, units]) for counts in drawn]
    resampled = np.concatenate([np.empty((0, len(_FIGURES))), *measured])
    return {name: find_interval(getattr(found, name), resampled[:, place]) for place, name in enumerate(_FIGURES)}


def _draw_items(count: int, rounds: int, seed: int) -> Iterator[Floats]:
    """How often each item is drawn; no rounds for too few items."""
    return draw_counts(count, rounds if count >= LEAST_DIALOGUES else 0, seed)


def _measure_drawn_intraclass(ratings: Floats, counts: Floats) -> Floats:
    """The four figures of resamples [those with variance, 4], `counts` being how often each has each item.

    The sums of squares are linear in these counts. They are expected to be sums of the squared mean and the variances
    of items, of raters and of the rest, which are solved for.
    """
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
    # With missing cells an estimated variance may be far below 0, and a share of such variances above 1.
    _, item, rater, error = found = np.maximum(components, 0).T
    noise = 1e-12 * found[1:].sum(axis=0)  # what rounding leaves of components that are 0
    per_item = items / inverses
    single = [
        np.divide(item, whole, out=np.full_like(whole, np.nan), where=whole > noise)
        for whole in (item + error, item + rater + error)
    ]
    stepped = [per_item * each / (1 + (per_item - 1) * each) for each in single]
    return np.column_stack([single[0], stepped[0], single[1], stepped[1]])


def _divide(upper: float, lower: float) -> float:
    return upper / lower if lower and math.isfinite(lower) else math.nan


AlphaScale = Literal["nominal", "ordinal", "interval", "ratio"]
SCALES: tuple[AlphaScale, ...] = get_args(AlphaScale)

# Most distinct values, which are compared two by two in every resample. Chosen: five sliders of 0 to 100.
MOST_RATIO_VALUES = 500


def measure_alpha(ratings: Floats, scale: AlphaScale) -> float:
    """Alpha of a table with a row per item and a column per rater, NaN where there is no rating (Krippendorff 2011).

    Items that fewer than two rated say nothing and are left out. NaN where all ratings are one value. TooFewError where
    no item has two ratings, AssessmentError for negative values or too many distinct ones on a ratio scale.
    """
    return bound_alpha(ratings, scale, rounds=0, seed=0).value


def bound_alpha(ratings: Floats, scale: AlphaScale, rounds: int, seed: int) -> Interval:
    """Alpha with its interval from resampled items; raises as `measure_alpha` does."""
    rated = ratings[(~np.isnan(ratings)).sum(axis=1) >= 2]
    if not rated.size:
        raise TooFewError("Krippendorff's alpha needs an item with two ratings; there is none")
    given = ~np.isnan(rated)
    values, codes = np.unique(rated[given], return_inverse=True)
    if scale == "ratio" and values[0] < 0:
        raise AssessmentError(f"a ratio scale has no negative values, and {values[0]:g} is one")
    if scale == "ratio" and len(values) > MOST_RATIO_VALUES:
        raise AssessmentError(f"a ratio scale takes at most {MOST_RATIO_VALUES} distinct values, not {len(values)}")
    cells = sparse.csr_array((np.ones(len(codes)), (np.nonzero(given)[0], codes)), shape=(len(rated), len(values)))
    cells.sum_duplicates()
    counted = chain([np.ones((1, len(rated)))], _draw_items(len(rated), rounds, seed))
    found = np.concatenate([_measure_drawn_alpha(cells, values, scale, counts) for counts in counted])
    return find_interval(float(found[0]), found[1:])


def _measure_drawn_alpha(cells: Any, values: Floats, scale: AlphaScale, counts: Floats) -> Floats:
    """Alpha of many resamples. `cells` says how often each value was given to each item, `counts` how often [resamples,
    items] each item was drawn: both kinds of disagreement are sums over these.

    Two copies of an item are never paired: their equal values would make the expected disagreement too small, and
    alpha's interval would lie too low.
    """
    own = np.asarray(cells.sum(axis=1))
    totals = np.asarray((cells.T @ counts.T).T)
    total = totals.sum(axis=1)
    if scale in ("nominal", "ratio"):
        if scale == "ratio":
            sums, gaps = np.add.outer(values, values), np.subtract.outer(values, values)
            distances = np.divide(gaps, sums, out=np.zeros_like(gaps), where=sums > 0) ** 2
            # A dense row per item: some thousands of items at once, as there may be millions.
            step = max(1, DRAWS_AT_ONCE // len(values))
            parts = (cells[start : start + step].toarray() for start in range(0, len(own), step))
            within = np.concatenate([((part @ distances) * part).sum(axis=1) for part in parts])
            among = ((totals @ distances) * totals).sum(axis=1)
        else:
            within = own**2 - np.asarray(cells.power(2).sum(axis=1))
            among = total**2 - (totals**2).sum(axis=1)
    else:
        # Ordinal places are those of the resample's own values; they are centred, so that squares keep their digits.
        places = np.broadcast_to(values - values.mean(), totals.shape)
        if scale == "ordinal":
            places = np.cumsum(totals, axis=1) - totals / 2 - total[:, None] / 2
        sums, squares = (np.asarray(cells @ each.T) for each in (places, places**2))
        within = own[:, None] * squares - sums**2
        among = total * (totals * places**2).sum(axis=1) - (totals * places).sum(axis=1) ** 2

    def add_up(weights: Floats) -> Floats:
        return np.asarray(weights @ within if within.ndim == 1 else np.einsum("ni,in->n", weights, within))

    observed, copies = add_up(counts / (own - 1)), counts * (counts - 1)
    expected = total * (among - add_up(copies)) / (total * (total - 1) - copies @ own**2)
    is_defined = (totals > 0).sum(axis=1) > 1
    ratios = np.divide(observed, expected, out=np.full_like(total, np.nan), where=is_defined & (expected > 0))
    return np.asarray(1 - ratios)


COLUMNS = ("item", "rater", "value")
MOST_CELLS = 20_000_000  # Most items times raters, which are in memory at once. Chosen: 160 MB.


@dataclass(frozen=True)
class RatedItems:
    """The ratings of several people; `table` has a row per item and a column per rater, NaN for no rating."""

    name: str
    table: Floats


def read_items(path: Path) -> list[RatedItems]:
    """The tables of a file: one per criterion, raw and z-scored by worker, or the only one of a CSV.

    Raises BadFileError naming the line and the field.
    """
    return [_read_csv(path)] if path.suffix == ".csv" else _read_study(path)


def lay_out(items: ArrayLike, raters: ArrayLike, values: ArrayLike) -> Floats:
    """The table of numbered items by numbered raters; a rater's several values for one item are averaged.

    AssessmentError where it is larger than can be in memory.
    """
    rows, columns = (np.unique(each, return_inverse=True)[1].reshape(-1) for each in (items, raters))
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        raise AssessmentError(f"{shape[0]} items of {shape[1]} raters are too many for one table")
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (rows, columns), values)
    np.add.at(counts, (rows, columns), 1)
    return np.asarray(np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0))


def arrange(path: Path, name: str, rows: Iterable[tuple[str, str, float]]) -> RatedItems:
    """The table of (item, rater, value)."""
    items, raters, values = zip(*rows, strict=True)
    numbers = [{each: number for number, each in enumerate(dict.fromkeys(names))} for names in (items, raters)]
    try:
        table = lay_out([numbers[0][each] for each in items], [numbers[1][each] for each in raters], values)
    except AssessmentError as error:
        raise BadFileError(path, 0, str(error)) from None
    return RatedItems(name, table)


def _read_study(path: Path) -> list[RatedItems]:
    ratings = read_ratings(path)
    kept = [(at, row) for at, row in enumerate(ratings.dialogues) if row.dialogue is not None and not row.degraded]
    if not kept:
        raise BadFileError(path, 0, "dialogue: no line names one, so nothing was rated by several people")
    table = build_table(ratings)
    found = []
    for kind, values in (("raw", table.ratings), ("z", standardize(table))):
        columns = np.column_stack([values, values.mean(axis=1)])
        for column, name in enumerate([*ratings.description.names, OVERALL]):
            # Each system may have a dialogue 1.
            rated = ((repr((row.system, row.dialogue)), row.worker, float(columns[at, column])) for at, row in kept)
            found.append(arrange(path, f"{name}, {kind}", rated))
    return found


def _read_csv(path: Path) -> RatedItems:
    rows = [_read_row(path, *row) for row in read_csv(path, COLUMNS).rows]
    if not rows:
        raise BadFileError(path, 0, "has no rating")
    return arrange(path, path.stem, rows)


def _read_row(path: Path, number: int, row: dict[str, str | None]) -> tuple[str, str, float]:
    item, rater, value = (row[name] for name in COLUMNS)
    if not item or not rater:
        raise BadFileError(path, number, "item and rater must not be empty")
    try:
        found = float(value or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadFileError(path, number, f"value: {value!r} is not a number")
    return item, rater, found


INTRACLASS = dict(zip(("ICC(C,1)", "ICC(C,k)", "ICC(A,1)", "ICC(A,k)"), _FIGURES, strict=True))
ALPHAS = {f"alpha {scale}": scale for scale in SCALES}
FIGURES = [*INTRACLASS, *ALPHAS]


@dataclass(frozen=True)
class Reliability:
    name: str
    items: int
    raters: float  # k: how many rated an item, the harmonic mean where that differs.
    figures: Mapping[str, Interval]
    undefined: Sequence[str]  # Why a figure is missing.


def measure_reliability(rated: RatedItems, rounds: int, seed: int) -> Reliability:
    table = rated.table
    figures = dict.fromkeys(FIGURES, Interval(math.nan))
    undefined: list[str] = []
    try:
        found = bound_intraclass(table, rounds, seed)
        figures |= {name: found[field] for name, field in INTRACLASS.items()}
    except AssessmentError as error:
        undefined.append(str(error))
    for name, scale in ALPHAS.items():
        try:
            figures[name] = bound_alpha(table, scale, rounds, seed)
        except AssessmentError as error:
            undefined.append(str(error))
    per_item = (~np.isnan(table)).sum(axis=1)
    raters = float(len(table) / (1 / per_item).sum())
    return Reliability(rated.name, len(table), raters, figures, list(dict.fromkeys(undefined)))
