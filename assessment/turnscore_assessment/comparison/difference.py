"""The difference of two systems in one score: its interval by resampling dialogues, its p-value, its size.

The interval is the bootstrap-t one (Efron & Tibshirani 1993, chapter 12), which keeps its promise for skewed scores and
few dialogues better than percentiles do; the p-value is the level at which that interval, made symmetric, touches 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import CONFIDENCE, Floats, Interval

ROUNDS = 2000
"""Resamples. Chosen: the interval's ends vary by about 2 % of its width from seed to seed."""
LEAST_DIALOGUES = 3
"""Fewest dialogues of each system. With fewer, a resample is mostly one dialogue repeated. Chosen."""
DRAWS_AT_ONCE = 2_000_000
"""Numbers drawn together. Chosen: some 100 MB of memory."""
ROUNDING = 1e-12
"""Share of a value below which a spread is rounding. Chosen: float64 leaves about 1e-16."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of system A's score from B's, A minus B."""

    dialogues_a: int
    dialogues_b: int
    is_paired: bool
    mean_a: float
    mean_b: float
    difference: Interval
    p_value: float | None
    """None where every dialogue shows the same difference: chance then has nothing to be measured by."""
    effect: Interval | None
    """Hedges' g: the difference in standard deviations of a dialogue's score within a system."""
    superiority: float
    """The share of pairs of dialogues in which A scores higher, ties counting half; if paired, of counterparts."""
    spread: float
    """The standard deviation that planning needs: of a pair's difference, or of a dialogue within a system."""

    @property
    def is_decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.difference.low > 0 or self.difference.high < 0


def measure_difference(a: ArrayLike, b: ArrayLike, *, paired: bool, rounds: int = ROUNDS, seed: int = 0) -> Difference:
    """A's scores against B's, one per dialogue; paired scores are of the same dialogue. TooFewError for too few."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(len(x), len(y)) < LEAST_DIALOGUES:
        raise TooFewError(f"{min(len(x), len(y))} dialogues of a system; at least {LEAST_DIALOGUES} are needed")
    value = float(x.mean() - y.mean())
    error = _standard_error(x, y, paired)
    scale = max(float(np.abs(x).max()), float(np.abs(y).max()))
    within = float(np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2))
    if error <= ROUNDING * scale:
        interval, p_value, effect = Interval(value=value, low=value, high=value), None, None
    else:
        drawn = list(_resample(x, y, paired, rounds, np.random.default_rng(seed)))
        interval, p_value = _find_interval(value, error, np.concatenate([each[0] for each in drawn]))
        effect = _find_effect(value, within, len(x) + len(y) - 2, np.concatenate([each[1] for each in drawn]))
    return Difference(
        dialogues_a=len(x),
        dialogues_b=len(y),
        is_paired=paired,
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        difference=interval,
        p_value=p_value,
        effect=effect,
        superiority=_find_superiority(x, y, paired),
        spread=float((x - y).std(ddof=1)) if paired else within,
    )


def _standard_error(x: Floats, y: Floats, paired: bool) -> float:
    if paired:
        return float((x - y).std(ddof=1) / np.sqrt(len(x)))
    return float(np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y)))


def _resample(
    x: Floats, y: Floats, paired: bool, rounds: int, generator: np.random.Generator
) -> Iterator[tuple[Floats, Floats]]:
    """Resampled t statistics about the observed difference, and effect sizes; computed some rounds at a time."""
    observed = x.mean() - y.mean()
    step = max(1, DRAWS_AT_ONCE // (len(x) + len(y)))
    for start in range(0, rounds, step):
        count = min(step, rounds - start)
        places = generator.integers(0, len(x), (count, len(x)))
        drawn_x = x[places]
        drawn_y = y[places] if paired else y[generator.integers(0, len(y), (count, len(y)))]
        differences = drawn_x.mean(axis=1) - drawn_y.mean(axis=1)
        variances = drawn_x.var(axis=1, ddof=1), drawn_y.var(axis=1, ddof=1)
        if paired:
            squared = (drawn_x - drawn_y).var(axis=1, ddof=1) / len(x)
        else:
            squared = variances[0] / len(x) + variances[1] / len(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            yield (differences - observed) / np.sqrt(squared), differences / np.sqrt(sum(variances) / 2)


def _find_interval(value: float, error: float, steps: Floats) -> tuple[Interval, float]:
    """Leaves out resamples without any spread, which have no t statistic."""
    kept = steps[np.isfinite(steps)]
    tail = (1 - CONFIDENCE) / 2
    if not len(kept):
        return Interval(value=value, low=-np.inf, high=np.inf), 1.0
    low, high = np.quantile(kept, [tail, 1 - tail])
    beyond = int((np.abs(kept) >= abs(value / error)).sum())
    interval = Interval(value=value, low=float(value - high * error), high=float(value - low * error))
    return interval, (1 + beyond) / (1 + len(kept))


def _find_effect(value: float, within: float, freedom: int, resampled: Floats) -> Interval | None:
    if within <= 0:
        return None
    unbiased = 1 - 3 / (4 * freedom - 1)
    kept = resampled[np.isfinite(resampled)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(kept, [tail, 1 - tail]) if len(kept) else (-np.inf, np.inf)
    return Interval(value=unbiased * value / within, low=float(unbiased * low), high=float(unbiased * high))


def _find_superiority(x: Floats, y: Floats, paired: bool) -> float:
    if paired:
        return float(((x > y) + 0.5 * (x == y)).mean())
    ranks = stats.rankdata(np.concatenate([x, y]))[: len(x)]
    return float((ranks.sum() - len(x) * (len(x) + 1) / 2) / (len(x) * len(y)))
