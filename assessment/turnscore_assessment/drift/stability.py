"""Population stability: the distance of percentiles in ten bins from a reference, and how far chance takes them.

The index is sum((p - q) ln(p / q)) over the bins, with half a turn more in each, so that no share is 0. Without drift
it is about chi-squared with 9 degrees of freedom over the number of independent observations (Yurdakul 2018). Turns of
one dialogue are alike, so the observations are dialogues. The rules of deploy/observability compute the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

BINS = 10
LEVEL = 0.01
"""Most false alarms per window without drift. Chosen; docs/drift.md has what it comes to."""
LEAST_DIALOGUES = 100
"""Fewest dialogues of a window. Chosen: with fewer, a limit finds nothing but a bot that broke."""
_PRIOR = 0.5  # chosen: turns added to each bin
CHI_SQUARED = float(stats.chi2.isf(LEVEL, BINS - 1))
UNIFORM = (1 / BINS,) * BINS
"""The shares of the bundle's reference turns, equal by the definition of a percentile."""


def find_shares(bins: ArrayLike) -> tuple[float, ...]:
    """The share of turns in each bin, none of them 0."""
    counts = np.asarray(bins, dtype=np.float64) + _PRIOR
    return tuple(float(each) for each in counts / counts.sum())


def measure_stability(bins: ArrayLike, reference: Sequence[float] = UNIFORM) -> float:
    """The population stability index of counted turns against reference shares; 0 where they are equal."""
    seen, expected = np.array(find_shares(bins)), np.asarray(reference, dtype=np.float64)
    return float(np.sum((seen - expected) * np.log(seen / expected)))


def find_limit(dialogues: float, reference_dialogues: float | None = None) -> float:
    """What the index exceeds with probability `LEVEL` without drift; a counted reference widens it."""
    return CHI_SQUARED * (1 / dialogues + (1 / reference_dialogues if reference_dialogues else 0.0))
