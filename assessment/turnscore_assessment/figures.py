"""What every package computes with: a figure with its interval, correlations, AUC and balanced accuracy.

The turns of one dialogue depend on each other, so a round of resampling draws as many dialogues as there are, with
replacement, and takes all of a drawn dialogue's observations as often as it was drawn. Nothing is copied: every
coefficient is computed from how often each dialogue was drawn, which gives the resample's coefficient exactly.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import scipy  # loads its parts when first used: --help needs none
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]

CONFIDENCE = 0.95
# Resamples of an interval. Chosen: the ends of a 95 % interval then vary by less than a tenth of its width between
# seeds.
ROUNDS = 1000
DRAWS_AT_ONCE = 2_000_000  # Numbers drawn together. Chosen: 16 MB, and several arrays of that size.
# Most resamples. Chosen: enough for the most careful report, and still in memory for the most systems.
MOST_ROUNDS = 10_000


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


LEAST_WILLIAMS_ROWS = 4  # Fewest rows: Williams' test has n - 3 degrees of freedom. Specified.
# How near to 1 a correlation makes two columns the same, and a norm to 0 a column constant. Chosen: above rounding.
SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Williams:
    """Whether two columns correlate with the ratings alike; `t` is above 0 where the first one correlates more."""

    t: float
    p: float  # Two-sided.


def plain(value: float) -> float | None:
    """The number in JSON: null where it is not finite."""
    return float(value) if math.isfinite(value) else None


def find_interval(value: float, resampled: ArrayLike, units: int | None = None) -> Interval:
    """The value with its resamples' percentile interval; NaN ones are left out.

    `units`, the number of independent ones in a mean, widens it as Student's t does (Hesterberg 2015, expanded
    percentiles): otherwise the interval of a mean over a dozen is too narrow.
    """
    found = np.asarray(resampled, dtype=np.float64)
    kept = found[~np.isnan(found)]
    if not kept.size:
        return Interval(value)
    tail = (1 - CONFIDENCE) / 2
    if units is not None and units > 1:
        tail = float(scipy.stats.norm.cdf(math.sqrt(units / (units - 1)) * scipy.stats.t.ppf(tail, units - 1)))
    low, high = np.percentile(kept, [100 * tail, 100 - 100 * tail])
    return Interval(float(value), float(low), float(high))


def find_resampled_p(resampled: ArrayLike, units: int) -> float:
    """The two-sided p of 0 that agrees with `find_interval`: below .05 exactly where that excludes 0. NaN for none."""
    found = np.sort(np.asarray(resampled, dtype=np.float64))
    kept = found[~np.isnan(found)]
    if not kept.size or units < 2:
        return math.nan
    share = float(np.interp(0, kept, np.linspace(0, 1, len(kept)), left=0, right=1))
    tail = scipy.stats.norm.ppf(min(share, 1 - share)) * math.sqrt((units - 1) / units)
    return float(2 * scipy.stats.t.cdf(tail, units - 1))


def split_rounds(rounds: int, size: int) -> list[int]:
    """How many of the rounds, each of so many numbers, are drawn together."""
    step = max(1, DRAWS_AT_ONCE // size)
    return [min(step, rounds - start) for start in range(0, rounds, step)]


def draw_counts(units: int, rounds: int, seed: int) -> Iterator[Floats]:
    """How often each unit is drawn, with replacement, a row per resample; some resamples at a time."""
    generator = np.random.default_rng(seed)
    for count in split_rounds(rounds, units):
        drawn = (generator.integers(0, units, units) for _ in range(count))
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
    return compute_pearson(*map(scipy.stats.rankdata, (left, right)))


def compute_kendall(left: ArrayLike, right: ArrayLike) -> float:
    """Kendall's tau-b; NaN as for `compute_pearson`."""
    x, y = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.kendalltau(x, y).statistic)


def correlate_rows(left: Floats, right: Floats) -> Floats:
    """Pearson's r of each pair of rows; NaN where a row is constant or lacks a value."""
    x, y = left - left.mean(axis=1, keepdims=True), right - right.mean(axis=1, keepdims=True)
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    found = np.divide((x * y).sum(axis=1), norms, out=np.full_like(norms, np.nan), where=norms > SAME)
    return np.asarray(np.clip(found, -1, 1))


def bound_by_fisher(r: float, count: int) -> Interval:
    """Fisher's interval of a correlation over so many pairs; none for fewer than four, or for 1 and -1."""
    if count < 4 or not abs(r) < 1:
        return Interval(r)
    reach = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)) / math.sqrt(count - 3)
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
    return Williams(t, float(2 * scipy.stats.t.sf(abs(t), rows - 3)))


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


Statistic = Callable[[Floats, Floats], float]

UNEXPLAINED = 1e-12  # Residual share of a variance that counts as rounding. Chosen: float64 leaves about 1e-30.


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def compute_auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve; ties count half. NaN if one class is missing."""
    is_positive = _floats(labels) == 1
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = scipy.stats.rankdata(_floats(scores))
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def compute_balanced_accuracy(scores: ArrayLike, labels: ArrayLike, threshold: float = 0.5) -> float:
    """Mean of the recalls of both classes, class 1 called from `threshold` on. NaN if one class is missing."""
    is_called, is_positive = _floats(scores) >= threshold, _floats(labels) == 1
    if is_positive.all() or not is_positive.any():
        return float("nan")
    return float((is_called[is_positive].mean() + (~is_called[~is_positive]).mean()) / 2)


def find_best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """The threshold, among the scores themselves, with the highest balanced accuracy."""
    candidates = np.unique(_floats(scores))
    return float(max(candidates, key=lambda threshold: compute_balanced_accuracy(scores, labels, threshold)))


def compute_partial_correlation(left: ArrayLike, right: ArrayLike, given: ArrayLike, *, ranks: bool = False) -> float:
    """Correlation of `left` and `right` with the linear effect of `given` taken out of both; of ranks if asked.

    NaN if `given` explains one side entirely, and for three values, of which it is always 1 or -1.
    """
    columns = [_floats(column) for column in (left, right, given)]
    if columns[0].size <= LEAST_OBSERVATIONS:
        return math.nan
    if ranks:
        columns = [scipy.stats.rankdata(column) for column in columns]
    matrix = [[compute_pearson(one, other) for other in columns] for one in columns]
    return float(find_partial(np.array([matrix]), 2)[0])


def bootstrap(statistic: Statistic, left: ArrayLike, right: ArrayLike, rounds: int = ROUNDS) -> Interval:
    """The statistic with its percentile bootstrap interval, resampling pairs; rounds that give NaN are left out."""
    x, y = _floats(left), _floats(right)
    generator = np.random.default_rng(0)
    values = []
    for _ in range(rounds):
        chosen = generator.integers(0, len(x), len(x))
        values.append(statistic(x[chosen], y[chosen]))
    return find_interval(statistic(x, y), values)


LEAST_OBSERVATIONS = 3  # With fewer, a correlation is always 1 or -1. Specified.

# Fewest dialogues for an interval. Measured on normal values: intervals of 95 % held .66 of correlations, .76 of means
# over 3 dialogues, .87 to .92 over 6.
LEAST_DIALOGUES = 6

_DIALOGUES_AT_ONCE = 256  # Dialogues whose pairs with all dialogues are held at once: 20 MB of 10,000.

# Numbers of all rounds that are weighted together, 256 kB an array. Measured: the quickest of 2**14 to 2**18.
_NUMBERS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Correlations:
    """One column's correlations with people's judgements; NaN where undefined."""

    pearson: Interval
    spearman: Interval
    kendall: Interval
    # By what was held constant: the partial `pearson` and `spearman` correlations.
    given: Mapping[str, Mapping[str, Interval]]


def correlate_clustered(
    scores: Floats, qualities: Floats, given: Mapping[str, Floats], dialogue_of: Integers, rounds: int, seed: int
) -> Correlations:
    """The correlations of two columns, and those given others; `dialogue_of` numbers each observation's dialogue."""
    dialogue_of = np.unique(dialogue_of, return_inverse=True)[1]
    if len(scores) < LEAST_OBSERVATIONS:
        nothing = Interval(math.nan)
        return Correlations(nothing, nothing, nothing, {kind: dict.fromkeys(_METHODS, nothing) for kind in given})
    draws = draw_dialogues(int(dialogue_of.max()) + 1, rounds, seed)
    columns = np.stack([scores, qualities, *given.values()])
    resampled = {name: method(columns, dialogue_of, draws) for name, method in _METHODS.items()}
    partial = {
        kind: {
            name: find_interval(
                compute_partial_correlation(scores, qualities, given[kind], ranks=name == "spearman"),
                find_partial(matrices, place),
            )
            for name, matrices in resampled.items()
        }
        for place, kind in enumerate(given, start=2)
    }
    pearson = find_interval(compute_pearson(scores, qualities), resampled["pearson"][:, 0, 1])
    spearman = find_interval(compute_spearman(scores, qualities), resampled["spearman"][:, 0, 1])
    kendall = find_interval(compute_kendall(scores, qualities), resample_kendall(columns[:2], dialogue_of, draws))
    return Correlations(pearson, spearman, kendall, partial)


def draw_dialogues(count: int, rounds: int, seed: int) -> Floats:
    """How often each of `count` dialogues is drawn, a row per round; no rounds for too few dialogues."""
    generator = np.random.default_rng(seed)
    rounds = rounds if count >= LEAST_DIALOGUES else 0
    return generator.multinomial(count, np.full(count, 1 / count), size=rounds).astype(np.float64)


def resample_pearson(columns: Floats, dialogue_of: Integers, draws: Floats) -> Floats:
    """Pearson's r of all pairs of columns: one matrix per round."""
    centred = columns - columns.mean(axis=1, keepdims=True)
    return _resample_matrices(lambda _: centred, columns, dialogue_of, draws)


def resample_spearman(columns: Floats, dialogue_of: Integers, draws: Floats) -> Floats:
    """Spearman's rho of all pairs of columns: one matrix per round."""
    codes = [np.unique(column, return_inverse=True)[1] for column in columns]
    return _resample_matrices(
        lambda weights: np.stack([_weighted_ranks(each, weights) for each in codes], axis=-2),
        columns,
        dialogue_of,
        draws,
    )


def resample_kendall(pair: Floats, dialogue_of: Integers, draws: Floats) -> Floats:
    """Kendall's tau-b of two columns, one per round.

    Its sums over pairs of observations are sums over pairs of dialogues, so a round is a quadratic form in `draws` and
    sorts nothing.
    """
    if not len(draws):
        return np.zeros(0)
    agreeing = _resample_pairs(lambda left, right: left * right, pair, dialogue_of, draws)
    untied = [_resample_pairs(lambda left, _: left * left, each, dialogue_of, draws) for each in (pair, pair[::-1])]
    return _divide(agreeing, np.sqrt(untied[0] * untied[1]))


def resample_auc(scores: Floats, labels: Floats, dialogue_of: Integers, draws: Floats) -> Floats:
    """The area under the ROC curve of scores against labels of 0 and 1, one per round; ties count half."""
    codes = np.unique(scores, return_inverse=True)[1]
    areas = []
    for drawn in draws:
        weights = drawn[dialogue_of]
        positives = weights * (labels == 1)
        count, others = positives.sum(), weights.sum() - positives.sum()
        ranks = positives @ _weighted_ranks(codes, weights[None])[0]
        areas.append((ranks - count * (count + 1) / 2) / (count * others) if count and others else np.nan)
    return np.array(areas)


def find_partial(matrices: Floats, given: int) -> Floats:
    """The partial correlation of columns 0 and 1 given another, of each round's matrix of correlations."""
    both, left, right = matrices[:, 0, 1], matrices[:, 0, given], matrices[:, 1, given]
    rests = np.stack([1 - left**2, 1 - right**2])
    rests[rests <= UNEXPLAINED] = 0
    return _divide(both - left * right, np.sqrt(rests.prod(axis=0)))


def _resample_pairs(
    of_signs: Callable[[Floats, Floats], Floats], pair: Floats, dialogue_of: Integers, draws: Floats
) -> Floats:
    """Each round's sum, over all pairs of observations, of a function of the signs of their two differences.

    Whole numbers below 2**53, however the pairs are parted: the sums are exact.
    """
    left, right = pair
    count = draws.shape[1]
    totals = np.zeros(len(draws))
    for first in range(0, count, _DIALOGUES_AT_ONCE):
        part = range(first, min(first + _DIALOGUES_AT_ONCE, count))
        sums = np.empty((len(part), count))
        for place, dialogue in enumerate(part):
            own = dialogue_of == dialogue
            found = of_signs(np.sign(left[own, None] - left), np.sign(right[own, None] - right))
            sums[place] = np.bincount(dialogue_of, found.sum(axis=0), count)
        totals += ((draws @ sums.T) * draws[:, part.start : part.stop]).sum(axis=1)
    return totals


def _resample_matrices(
    weigh: Callable[[Floats], Floats], columns: Floats, dialogue_of: Integers, draws: Floats
) -> Floats:
    """Pearson's r of all pairs of the columns that `weigh` makes of some rounds' weights: one matrix per round."""
    matrices = np.empty((len(draws), *[len(columns)] * 2))
    rounds = max(1, _NUMBERS_AT_ONCE // columns.size)
    for first in range(0, len(draws), rounds):
        weights = draws[first : first + rounds, dialogue_of]
        matrices[first : first + rounds] = _weighted_pearson(weigh(weights), weights)
    return matrices


def _weighted_ranks(codes: Integers, weights: Floats) -> Floats:
    """Ranks, ties averaged, where each observation stands as often as its weight; `codes` number the values upwards.

    `weights` and ranks are [rounds, observations].
    """
    counts = np.stack([np.bincount(codes, each) for each in weights])
    return np.asarray(np.take(np.cumsum(counts, axis=1) - (counts - 1) / 2, codes, axis=1))


def _weighted_pearson(columns: Floats, weights: Floats) -> Floats:
    """Pearson's r of all pairs of columns where each observation stands as often as its weight: a matrix per round.

    `weights` are [rounds, observations]; `columns` [columns, observations], or such a table per round.
    """
    upright = weights[..., None]
    centred = columns - (columns @ upright) / weights.sum(axis=-1)[:, None, None]
    covariance = (centred * weights[:, None]) @ centred.swapaxes(-1, -2)
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    is_constant = variances <= UNEXPLAINED * (columns**2 @ upright)[..., 0]
    norms = np.where(is_constant, 0, np.sqrt(variances))
    return _divide(covariance, norms[..., :, None] * norms[..., None, :])


def _divide(left: Floats, right: Floats) -> Floats:
    """The quotient; NaN where the divisor is 0."""
    return np.divide(left, right, out=np.full_like(left, np.nan), where=right > 0)


_METHODS = {"pearson": resample_pearson, "spearman": resample_spearman}
