"""What every package computes with: a figure with its interval, percentile intervals, correlations."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel
from scipy import stats

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]

CONFIDENCE = 0.95
ROUNDS = 1000
"""Resamples of an interval. Chosen: the ends of a 95 % interval then vary by less than a tenth of its width between
seeds."""
DRAWS_AT_ONCE = 2_000_000
"""Numbers drawn together. Chosen: 16 MB, and several arrays of that size."""
MOST_ROUNDS = 10_000
"""Most resamples. Chosen: enough for the most careful report, and still in memory for the most systems."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; NaN for unknown ends."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:.3f}" if math.isnan(self.low) else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def to_json(self) -> dict[str, float | None]:
        """The three numbers; null for an unknown one."""
        return {"value": plain(self.value), "low": plain(self.low), "high": plain(self.high)}


LEAST_WILLIAMS_ROWS = 4
"""Fewest rows: Williams' test has n - 3 degrees of freedom. Specified."""
SAME = 1e-12
"""How near to 1 a correlation makes two columns the same. Chosen: above rounding."""


@dataclass(frozen=True, slots=True)
class Williams:
    """Whether two columns correlate with the ratings alike; `t` is above 0 where the first one correlates more."""

    t: float
    p: float
    """Two-sided."""


def plain(value: float) -> float | None:
    """The number in JSON: null where it is not finite."""
    return float(value) if math.isfinite(value) else None


def find_interval(value: float, resampled: ArrayLike, units: int | None = None) -> Interval:
    """The value with the percentile interval of its resamples; NaN resamples are left out.

    `units`, the number of independent ones in a mean, widens it as Student's t does (Hesterberg 2015, expanded
    percentiles): otherwise the interval of a mean over a dozen is too narrow.
    """
    found = np.asarray(resampled, dtype=np.float64)
    kept = found[~np.isnan(found)]
    if not kept.size:
        return Interval(value)
    tail = (1 - CONFIDENCE) / 2
    if units is not None and units > 1:
        tail = float(stats.norm.cdf(math.sqrt(units / (units - 1)) * stats.t.ppf(tail, units - 1)))
    low, high = np.percentile(kept, [100 * tail, 100 - 100 * tail])
    return Interval(float(value), float(low), float(high))


def draw_counts(units: int, rounds: int, seed: int) -> Iterator[Floats]:
    """How often each unit is drawn, with replacement, a row per resample; some resamples at a time."""
    generator = np.random.default_rng(seed)
    step = max(1, DRAWS_AT_ONCE // units)
    for start in range(0, rounds, step):
        drawn = (generator.integers(0, units, units) for _ in range(min(step, rounds - start)))
        yield np.array([np.bincount(each, minlength=units) for each in drawn], dtype=np.float64)


def compute_pearson(left: ArrayLike, right: ArrayLike) -> float:
    """Pearson's r; NaN where a side is constant or there are fewer than two values."""
    x, y = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / norm, -1, 1)) if norm > 0 else math.nan


def compute_spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Spearman's rho, ties averaged; NaN as for `compute_pearson`."""
    return compute_pearson(stats.rankdata(np.asarray(left)), stats.rankdata(np.asarray(right)))


def compute_kendall(left: ArrayLike, right: ArrayLike) -> float:
    """Kendall's tau-b; NaN as for `compute_pearson`."""
    x, y = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(stats.kendalltau(x, y).statistic)


def correlate_rows(left: Floats, right: Floats) -> Floats:
    """Pearson's r of each pair of rows; NaN where a row is constant or lacks a value."""
    x, y = left - left.mean(axis=1, keepdims=True), right - right.mean(axis=1, keepdims=True)
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.asarray(np.divide((x * y).sum(axis=1), norms, out=np.full(len(x), np.nan), where=norms > 0))


def bound_by_fisher(r: float, count: int) -> Interval:
    """Fisher's interval of a correlation over so many pairs; none for fewer than four, or for 1 and -1."""
    if count < 4 or not abs(r) < 1:
        return Interval(r)
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) / math.sqrt(count - 3)
    return Interval(r, math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach))


def williams_test(first: Floats, second: Floats, ratings: Floats) -> Williams:
    """Williams' test of two dependent correlations that share the ratings (Williams 1959; Graham and Baldwin 2014).

    NaN for fewer than four rows, and where a column is constant or the two are the same.
    """
    rows = len(ratings)
    r12, r13, r23 = compute_pearson(first, ratings), compute_pearson(second, ratings), compute_pearson(first, second)
    if rows < LEAST_WILLIAMS_ROWS or not all(map(math.isfinite, (r12, r13, r23))) or 1 - abs(r23) < SAME:
        return Williams(math.nan, math.nan)
    k = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    spread = 2 * max(k, 0.0) * (rows - 1) / (rows - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3
    if spread <= 0:
        return Williams(math.nan, math.nan)
    t = (r12 - r13) * math.sqrt((rows - 1) * (1 + r23) / spread)
    return Williams(t, float(2 * stats.t.sf(abs(t), rows - 3)))


def jsonable(row: Any) -> Any:
    """The value as nested dictionaries and lists: non-finite numbers are null, intervals and dataclasses objects."""
    if isinstance(row, Interval):
        return row.to_json()
    if is_dataclass(row):
        return {each.name: jsonable(getattr(row, each.name)) for each in fields(row)}
    if isinstance(row, Mapping):
        return {str(name): jsonable(value) for name, value in row.items()}
    if isinstance(row, list | tuple):
        return [jsonable(value) for value in row]
    if isinstance(row, BaseModel):
        return row.model_dump(mode="json")
    if isinstance(row, np.floating | float):
        return plain(float(row))
    return row.item() if isinstance(row, np.integer | np.bool_) else row
