"""The window: the latest pairs of percentiles that a shadow and the served version gave. Holds numbers alone."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

WINDOW_PAIRS = 1000
"""Pairs that the rank correlation is taken over. Chosen: its standard error is then 0.03 at most."""
LEAST_PAIRS = 30
"""Below there is no correlation. Chosen."""


class PairWindow:
    """The latest pairs. One thread at a time adds."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[float, float]] = deque(maxlen=WINDOW_PAIRS)

    def add(self, served: float, shadow: float) -> float | None:
        """Takes in one pair; the rank correlation of the pairs, or None while there is none.

        Sorting all of them anew takes 0.1 to 0.2 ms, far less than the score that was computed for the pair.
        """
        self._pairs.append((served, shadow))
        return None if len(self._pairs) < LEAST_PAIRS else rank_correlation(np.array(self._pairs))


def rank_correlation(pairs: NDArray[np.float64]) -> float | None:
    """Spearman's rho of the two columns, equal values sharing their mean rank; None where a column is constant."""
    ranks = [_rank(column) for column in pairs.T]
    deviations = [column - column.mean() for column in ranks]
    norms = [float(np.sqrt((column**2).sum())) for column in deviations]
    if not all(norms):
        return None
    return float((deviations[0] * deviations[1]).sum() / (norms[0] * norms[1]))


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_ranks: NDArray[np.float64] = last - (counts - 1) / 2
    return mean_ranks[places.ravel()]
