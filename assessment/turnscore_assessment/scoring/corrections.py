"""Corrections of p-values where several comparisons are made at once: Holm's and Benjamini and Hochberg's."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnscore_assessment.figures import Floats


def correct_holm(p_values: ArrayLike) -> Floats:
    """Holm (1979): keeps the share of families with any false alarm below the level of comparison. In [0, 1]."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)) if len(given) else given
    return _put_back(stepped, order)


def correct_benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Benjamini & Hochberg (1995): keeps the share of false differences among those found below the level."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")[::-1]
    scaled = given[order] * len(given) / np.arange(len(given), 0, -1)
    return _put_back(np.minimum.accumulate(scaled) if len(given) else scaled, order)


def _put_back(sorted_values: Floats, order: NDArray[np.intp]) -> Floats:
    restored = np.empty_like(sorted_values)
    restored[order] = np.minimum(sorted_values, 1.0)
    return restored
