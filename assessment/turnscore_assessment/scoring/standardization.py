"""Standardization: a worker's mean and deviation, and ratings as distances from them. Filters nobody."""

from dataclasses import dataclass

import numpy as np

from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_table import RatingTable

SMALLEST_DEVIATION = 1e-6
"""Added to every deviation, as in the published code."""


@dataclass(frozen=True)
class WorkerStatistics:
    """By worker's number, over all criteria and dialogues of that worker, degraded ones included."""

    mean: Floats
    deviation: Floats
    """With ddof 1; 0 for a single rating."""


def measure_workers(table: RatingTable) -> WorkerStatistics:
    """One mean and one deviation per worker, not per criterion (Ji et al. 2022, section 3.3)."""
    workers, criteria = len(table.workers), table.ratings.shape[1]
    counts = np.bincount(table.worker_of, minlength=workers) * criteria
    mean = np.bincount(table.worker_of, table.ratings.sum(axis=1), minlength=workers) / counts
    spread = ((table.ratings - mean[table.worker_of, None]) ** 2).sum(axis=1)
    squares = np.bincount(table.worker_of, spread, minlength=workers)
    return WorkerStatistics(mean, np.sqrt(squares / np.maximum(counts - 1, 1)))


def standardize(table: RatingTable) -> Floats:
    """Every rating as a z-score of its worker; the same rows and columns."""
    workers = measure_workers(table)
    distance = table.ratings - workers.mean[table.worker_of, None]
    return np.asarray(distance / (workers.deviation[table.worker_of, None] + SMALLEST_DEVIATION))
