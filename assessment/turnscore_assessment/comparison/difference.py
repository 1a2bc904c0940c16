"""The difference of two systems in one score: a permutation test of Student's t, and the interval that inverts it.

Dialogues are exchanged between the systems (of pairs, the two counterparts), and t is taken with each arrangement's own
variances, which keeps the test asymptotically valid where the systems' variances differ (Janssen 1997; Chung & Romano
2013); for equal distributions it is exact. The interval holds every difference that the same arrangements do not
reject, so it excludes 0 exactly where p < .05. A bootstrap-t interval with a symmetric p was not dual, and of equal
systems with skewed scores called 7 % different.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, compute_auc, split_rounds

MOST_DIALOGUES = 1_000_000  # Chosen: a difference that needs more is reported as too small to look for.
LEVEL = 0.05
POWER = 0.8


def find_power(difference: float, spread: float, dialogues: int, *, paired: bool, level: float = LEVEL) -> float:
    """The share of studies of `dialogues` per system in which a two-sided t-test finds the difference.

    `spread` is the standard deviation of a pair's difference, or of one dialogue within a system (both alike).
    """
    freedom = dialogues - 1 if paired else 2 * dialogues - 2
    shift = abs(difference) / spread * math.sqrt(dialogues if paired else dialogues / 2)
    edge = float(scipy.stats.t.ppf(1 - level / 2, freedom))
    if freedom > 10_000:  # the non-central t is then the normal to four digits, and slow
        return float(scipy.stats.norm.sf(edge - shift) + scipy.stats.norm.cdf(-edge - shift))
    return float(scipy.stats.nct.sf(edge, freedom, shift) + scipy.stats.nct.cdf(-edge, freedom, shift))


def find_needed_dialogues(
    difference: float, spread: float, *, paired: bool, level: float = LEVEL, power: float = POWER
) -> int | None:
    """The fewest dialogues of each system with that power; None above MOST_DIALOGUES."""
    if spread <= 0:
        return 2 if difference else None
    if not difference:
        return None
    quantiles = float(scipy.stats.norm.ppf([1 - level / 2, power]).sum())
    normal = (1 if paired else 2) * (quantiles * spread / abs(difference)) ** 2
    if normal > MOST_DIALOGUES:
        return None
    needed = max(2, math.ceil(normal))
    while find_power(difference, spread, needed, paired=paired, level=level) < power:
        needed += 1
    return needed if needed <= MOST_DIALOGUES else None


def find_least_dialogues(*, paired: bool, level: float) -> int:
    """The fewest dialogues per system with which the permutation test's p can be below the level."""
    n = LEAST_PAIRS if paired else LEAST_DIALOGUES
    while 2 / (2**n if paired else math.comb(2 * n, n)) >= level:
        n += 1
    return n


def find_smallest_difference(
    spread: float, dialogues: int, *, paired: bool, level: float = LEVEL, power: float = POWER
) -> float:
    """The difference that `dialogues` per system show with that power."""
    freedom = dialogues - 1 if paired else 2 * dialogues - 2
    quantiles = float(scipy.stats.t.ppf([1 - level / 2, power], freedom).sum())
    return quantiles * spread * math.sqrt((1 if paired else 2) / dialogues)


ROUNDS = 2000  # Arrangements drawn. Chosen: a p of .05 is then known to .005 either way.
# Fewest dialogues of each system: three of each can be arranged in 20 ways, so that p is never below .1.
LEAST_DIALOGUES = 4
LEAST_PAIRS = 6  # Fewest pairs: five can be exchanged in 32 ways, so that p is never below .06.
ROUNDING = 1e-12  # Share of a value below which a spread is rounding. Chosen: float64 leaves about 1e-16.
# How far the interval's end is looked for, in multiples of the largest score. Chosen: with as many dialogues as
# LEAST_DIALOGUES and 70 arrangements, every end is found.
MOST_REACH = 1e9

# The one-sided p of the difference `value - rest` for `rest` and a direction, 1 or -1.
Count = Callable[[float, int], float]


@dataclass(frozen=True, kw_only=True)
class SystemDifference:
    """The difference of system A's score from B's, A minus B."""

    dialogues_a: int
    dialogues_b: int
    is_paired: bool
    mean_a: float
    mean_b: float
    difference: Interval  # Excludes 0 exactly where `p_value` is below .05; not corrected for the number of scorers.
    # Two-sided, twice the smaller tail; None where all dialogues (of pairs, all counterparts) have the same score.
    p_value: float | None
    effect: float | None  # Hedges' g: the difference in standard deviations of a dialogue's score within a system.
    # The share of pairs of dialogues in which A scores higher, ties counting half; if paired, of counterparts.
    superiority: float
    # The standard deviation that planning needs: of a pair's difference, or of a dialogue within a system.
    spread: float


def measure_difference(
    a: ArrayLike, b: ArrayLike, *, paired: bool, rounds: int = ROUNDS, seed: int = 0
) -> SystemDifference:
    """A's scores against B's, one per dialogue; paired scores are of the same dialogue. TooFewError for too few."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    least = LEAST_PAIRS if paired else LEAST_DIALOGUES
    if min(len(x), len(y)) < least:
        kind = "pairs of dialogues" if paired else "dialogues of a system"
        raise TooFewError(f"{min(len(x), len(y))} {kind}; at least {least} are needed")
    value = float(x.mean() - y.mean())
    scale = max(float(np.abs(x).max()), float(np.abs(y).max()))
    within = float(np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2))
    interval, p_value = Interval(value=0.0, low=0.0, high=0.0), None
    if max(abs(value), float(np.abs(x - y).max()) if paired else within) > ROUNDING * scale:
        generator = np.random.default_rng(seed)
        arrange = _exchange_pairs if paired else _exchange_dialogues
        scaled, count = value / scale, arrange(x / scale, y / scale, rounds, generator)
        p_value = min(1.0, 2 * min(count(scaled, 1), count(scaled, -1)))
        # The differences that the test does not reject at LEVEL.
        low, high = (scaled - direction * _find_reach(direction * scaled, count, direction) for direction in (1, -1))
        interval = Interval(value=value, low=low * scale, high=high * scale)
    is_a = np.repeat([1, 0], [len(x), len(y)])
    superiority = ((x > y) + 0.5 * (x == y)).mean() if paired else compute_auc(np.concatenate([x, y]), is_a)
    unbiased = 1 - 3 / (4 * (len(x) + len(y) - 2) - 1)
    return SystemDifference(
        dialogues_a=len(x),
        dialogues_b=len(y),
        is_paired=paired,
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        difference=interval,
        p_value=p_value,
        effect=unbiased * value / within if within > ROUNDING * scale else None,
        superiority=float(superiority),
        spread=float((x - y).std(ddof=1)) if paired else within,
    )


def _center(values: Floats) -> Floats:
    """The values less their mean, without the rounding that would make equal values differ."""
    centered = values - values.mean()
    return np.where(np.abs(centered) > ROUNDING * np.abs(values).max(), centered, 0.0)


def _exchange_dialogues(x: Floats, y: Floats, rounds: int, generator: np.random.Generator) -> Count:
    """Each arrangement is kept as four sums over its first group, from which t follows for any difference."""
    n, m = len(x), len(y)
    own, other = _center(x), _center(y)
    pooled = np.concatenate([own, other])
    is_x = np.repeat([1.0, 0.0], [n, m])
    columns = np.column_stack([is_x, is_x * pooled, pooled, pooled**2])
    groups = _draw_groups(is_x, rounds, generator)
    exchanged, own_sum, group_sum, group_squares = np.concatenate([group @ columns for group in groups]).T
    squares = float(pooled @ pooled)

    def count(rest: float, direction: int) -> float:
        first = group_sum + rest * exchanged
        first_squares = group_squares + 2 * rest * own_sum + rest**2 * exchanged
        second, second_squares = rest * n - first, squares + rest**2 * n - first_squares
        variance = (first_squares - first**2 / n) / (n * (n - 1)) + (second_squares - second**2 / m) / (m * (m - 1))
        # The floor is above the rounding of the squares: where groups have no spread, t stays one large number.
        floor = 1e-13 * (squares + rest**2 * n) / (n + m) ** 2
        t = (first / n - second / m) / np.sqrt(np.maximum(variance, floor))
        return _share_beyond(direction * t)

    return count


def _exchange_pairs(x: Floats, y: Floats, rounds: int, generator: np.random.Generator) -> Count:
    """Exchanging counterparts leaves the sum of squares as it is, so t grows with the mean, and that is compared."""
    centered = _center(x - y)
    columns = np.column_stack([np.ones_like(centered), centered])
    exchanged, exchanged_sum = np.concatenate([signs @ columns for signs in _draw_signs(len(x), rounds, generator)]).T

    def count(rest: float, direction: int) -> float:
        return _share_beyond(-direction * (exchanged_sum + rest * exchanged))

    return count


def _draw_groups(is_x: Floats, rounds: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Which dialogues are in the first group, a row for each arrangement: all, or a sample. The real one comes first,
    as it is one of those that may reach its own t."""
    n, size = int(is_x.sum()), len(is_x)
    if math.comb(size, n) <= rounds:
        chosen = np.array(list(combinations(range(size), n)))
        every = np.zeros((len(chosen), size))
        np.put_along_axis(every, chosen, 1.0, axis=1)
        yield every
        return
    yield is_x[None]
    for count in split_rounds(rounds, size):
        yield generator.permuted(np.tile(is_x, (count, 1)), axis=1)


def _draw_signs(size: int, rounds: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Which pairs are exchanged, a row for each arrangement: all, or a sample. The real one, without any, is first."""
    if 2**size <= rounds:
        yield ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)
        return
    yield np.zeros((1, size))
    for count in split_rounds(rounds, size):
        yield generator.integers(0, 2, (count, size)).astype(np.float64)


def _share_beyond(statistics: Floats) -> float:
    """The share that reaches the first; equal ones may differ by rounding."""
    return float((statistics >= statistics[0] - 1e-9 * (1 + abs(statistics[0]))).mean())


def _find_reach(zero: float, count: Count, direction: int) -> float:
    """How far the interval reaches from the difference in one direction; no difference lies `zero` away.

    `zero` is an end of the first bracket: wherever the tail's p may not be monotone, the interval still agrees with
    the test of no difference.
    """

    def is_held(reach: float) -> bool:
        return count(direction * reach, direction) >= LEVEL / 2

    inside = max(zero, 0.0)
    if inside and not is_held(inside):
        inside, outside = 0.0, inside
    else:
        outside = 2 * inside or 1e-6
        while is_held(outside):
            outside *= 2
            if outside > MOST_REACH:
                return math.inf
    for _ in range(40):  # halvings
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_held(middle) else (inside, middle)
    return inside
