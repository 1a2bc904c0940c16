"""System scores: the passing workers' ratings of each system, by criterion and overall, with intervals.

An interval comes from resampling whole workers, as the ratings of one worker depend on each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, find_interval
from turnscore_assessment.ratings.rating_table import Flags, Integers, RatingTable

OVERALL = "overall"
LEAST_WORKERS = 3
"""Fewest workers for an interval: with fewer, those asked say nothing about others. Chosen."""
DRAWS_AT_ONCE = 50
"""Resamples that are computed together. Chosen: bounds the memory to fifty tables of scores."""


@dataclass(frozen=True)
class SystemSums:
    """Sums of one kind of value: all that resampling workers needs."""

    values: Floats
    """By worker, system, and criterion; the last column is the mean over criteria."""
    dialogues: Floats
    """By worker and system."""

    def average(self, weights: Floats) -> Floats:
        """Means by (row of weights,) system and column, each worker counted by its weight; NaN for none."""
        counts = weights @ self.dialogues
        sums = np.tensordot(weights, self.values, axes=(-1, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums / counts[..., None])

    @property
    def everyone(self) -> Floats:
        """The weights that count each worker once."""
        return np.ones(len(self.dialogues))


@dataclass(frozen=True, kw_only=True)
class SystemScore:
    system: str
    dialogues: int
    ratings: int
    """Dialogues times criteria: n in the published tables."""
    scores: Mapping[str, Interval]
    """Standardized, overall first, then by criterion."""
    raw: Mapping[str, Interval]
    """Reversed but not standardized."""


def choose_rows(table: RatingTable, passing: Flags) -> Flags:
    """The rows that systems are scored by: ordinary systems, workers who count. TooFewError where there are none."""
    chosen = np.asarray(passing[table.worker_of] & ~table.is_degraded)
    if not chosen.any():
        raise TooFewError("no worker passes the quality control, so no system can be scored")
    return chosen


def sum_values(table: RatingTable, values: Floats, chosen: Flags, raters: Integers | None = None) -> SystemSums:
    """The sums of values by row over the chosen rows; of the workers `raters`, or of those with such a row."""
    workers, systems = len(table.workers), len(table.systems)
    place = table.worker_of[chosen] * systems + table.system_of[chosen]
    columns = np.column_stack([values[chosen], values[chosen].mean(axis=1)])
    size = workers * systems
    sums = np.stack([np.bincount(place, column, minlength=size) for column in columns.T], axis=-1).astype(np.float64)
    counts = np.bincount(place, minlength=size).astype(np.float64)
    kept = np.unique(table.worker_of[chosen]) if raters is None else raters
    return SystemSums(sums.reshape(workers, systems, -1)[kept], counts.reshape(workers, systems)[kept])


def resample_systems(sums: SystemSums, rounds: int, seed: int) -> Floats:
    """Means by round, system and column over as many workers as there are, drawn with replacement.

    No round where there are fewer than LEAST_WORKERS. The same seed draws the same workers for every kind of value.
    """
    workers = len(sums.dialogues)
    if workers < LEAST_WORKERS:
        return np.empty((0, *sums.values.shape[1:]))
    generator = np.random.default_rng(seed)
    found = []
    for start in range(0, rounds, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, rounds - start)
        draws = generator.multinomial(workers, np.full(workers, 1 / workers), size=size).astype(np.float64)
        found.append(sums.average(draws))
    return np.concatenate(found) if found else np.empty((0, *sums.values.shape[1:]))


def score_systems(
    table: RatingTable, standardized: SystemSums, raw: SystemSums, draws: Sequence[Floats]
) -> list[SystemScore]:
    """Every system's scores, best first; `draws` are the resamples of the standardized and of the raw means."""
    names = [*table.description.names, OVERALL]
    means = [sums.average(sums.everyone) for sums in (standardized, raw)]
    counts = standardized.dialogues.sum(axis=0).astype(int)
    workers = len(standardized.dialogues)

    def gather(kind: int, system: int) -> dict[str, Interval]:
        order = [len(names) - 1, *range(len(names) - 1)]
        return {
            names[column]: find_interval(float(means[kind][system, column]), draws[kind][:, system, column], workers)
            for column in order
        }

    found = [
        SystemScore(
            system=name,
            dialogues=int(counts[number]),
            ratings=int(counts[number]) * len(table.description.names),
            scores=gather(0, number),
            raw=gather(1, number),
        )
        for number, name in enumerate(table.systems)
        if counts[number]
    ]
    return sorted(found, key=lambda score: -score.scores[OVERALL].value)
