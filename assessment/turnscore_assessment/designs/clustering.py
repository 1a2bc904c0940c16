"""Estimates whose errors allow for raters and dialogues both: answers of one rater, or about one dialogue, correlate.

Two-way cluster-robust covariance (Cameron, Gelbach & Miller 2011): that of raters plus that of dialogues minus that of
their meetings, each with its small-sample factor G / (G - 1); t with one degree less than the fewer of both. Computes
on influences: how much each observation moves each estimate, exact for means and first-order for maximum likelihood.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from turnscore_assessment.figures import CONFIDENCE, Floats, Interval

Integers = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Values and the parts of their errors; a way of clustering with a single cluster makes none."""

    values: Floats
    covariances: tuple[Floats, ...]
    """Error parts by raters, by dialogues, and by both together where there are several of each."""
    freedom: int

    def contrast(self, weights: Floats) -> tuple[Interval, float]:
        """A weighted sum of the values with its interval and two-sided p; both NaN where the error is unknown."""
        value = float(weights @ self.values)
        variances = [float(weights @ covariance @ weights) for covariance in self.covariances]
        if not variances or self.freedom < 1:
            return Interval(value), float("nan")
        combined = variances[0] + variances[1] - variances[2] if len(variances) == 3 else variances[0]
        error = float(np.sqrt(max(combined, *variances[:2], 0.0)))
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * error
        p_value = 2 * float(stats.t.sf(abs(value) / error, self.freedom)) if error else float(value == 0)
        return Interval(value, value - half, value + half), p_value


def build_estimates(values: Floats, influences: Floats, raters: Integers, dialogues: Integers) -> Estimates:
    """`influences` has a row per observation and a column per value; raters and dialogues number the observations'."""
    ways = [way for way in (raters, dialogues) if len(np.unique(way)) > 1]
    counts = [len(np.unique(way)) for way in ways]
    if len(ways) == 2:
        ways.append(np.unique(np.column_stack([raters, dialogues]), axis=0, return_inverse=True)[1].reshape(-1))
    return Estimates(
        values=values,
        covariances=tuple(_covariance(influences, way) for way in ways),
        freedom=min(counts, default=1) - 1,
    )


def _covariance(influences: Floats, way: Integers) -> Floats:
    numbers = np.unique(way, return_inverse=True)[1].reshape(-1)
    groups = int(numbers.max()) + 1
    sums = np.zeros((groups, influences.shape[1]))
    np.add.at(sums, numbers, influences)
    return np.asarray(sums.T @ sums * (groups / (groups - 1)))


def average_by_system(values: Floats, systems: Integers, count: int) -> tuple[Floats, Floats]:
    """Each system's mean, NaN for one without observations, and the influences on the means."""
    shown = np.bincount(systems, minlength=count)
    with np.errstate(invalid="ignore"):
        means = np.bincount(systems, values, minlength=count) / shown
    influences = np.zeros((len(values), count))
    influences[np.arange(len(values)), systems] = (values - means[systems]) / shown[systems]
    return means, influences
