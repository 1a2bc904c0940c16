"""Scales: a raw score as a number from 0 to 1, by quantiles of training scores. Never sees what it will scale.

RUBER and PONE took the minimum and maximum of the very set they were tested on, so a turn's score depended on its
neighbours. A scale here is fitted once, kept with the checkpoint, and then a function of one score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnscore_exporters.errors import ExporterError

LOW, HIGH = 0.01, 0.99
"""Quantiles that become 0 and 1: the extremes would depend on two turns. Chosen."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingScale:
    """Linear from the training scores' 1st to their 99th percentile, and flat beyond."""

    low: float
    high: float

    @classmethod
    def fit(cls, training_scores: Sequence[float]) -> "TrainingScale":
        """Raises ExporterError where all scores are equal or none is given."""
        if not len(training_scores):
            raise ExporterError("a scale needs training scores")
        low, high = np.quantile(np.asarray(training_scores, dtype=np.float64), [LOW, HIGH])
        if not high > low:
            raise ExporterError(f"every training score is {low:.4g}: scores that vary are needed")
        return cls(float(low), float(high))

    def apply(self, scores: ArrayLike) -> Floats:
        found: Floats = np.clip((np.asarray(scores, dtype=np.float64) - self.low) / (self.high - self.low), 0.0, 1.0)
        return found


def blend_min(left: Floats, right: Floats) -> Floats:
    return np.minimum(left, right)


def blend_mean(left: Floats, right: Floats) -> Floats:
    return (left + right) / 2
