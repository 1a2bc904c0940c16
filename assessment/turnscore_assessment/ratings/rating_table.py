"""The rating table: a study's ratings as arrays, the negative criteria reversed, and z-scores by worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.figures import Flags, Floats, Integers
from turnscore_assessment.ratings.rating_file import Criterion, RatingFile, StudyDescription


class RatingUnit(StrEnum):
    """Of ratings: z-scores of their rater, or as they are."""

    Z = "z"
    RAW = "raw"


COMMON_LOW, COMMON_HIGH = 0.0, 100.0
"""The range of all ratings where criteria have different ones."""

MOST_SYSTEMS = 200
"""Most systems. Chosen: ten times a large shared task; every two of them are compared."""
MOST_CELLS = 50_000_000
"""Most workers times systems times criteria, which are in memory at once. Chosen: 400 MB."""


@dataclass(frozen=True, kw_only=True)
class RatingTable:
    """Rows are rated dialogues in the file's order, columns are criteria."""

    description: StudyDescription
    ratings: Floats
    """Reversed for negative criteria (low + high - x), so that more is better everywhere. On the criteria's range where
    all have the same, otherwise on 0 to 100."""
    workers: Sequence[str]
    systems: Sequence[str]
    """The systems under test, sorted; without the degraded ones."""
    worker_of: Integers
    assignment_of: Integers
    """Numbers a worker's HIT."""
    system_of: Integers
    """-1 for a degraded system."""

    @property
    def is_degraded(self) -> Flags:
        """Which rows are about a degraded system."""
        return np.asarray(self.system_of < 0)

    @property
    def controlling(self) -> Integers:
        """The columns that the quality control looks at."""
        return np.array(
            [place for place, criterion in enumerate(self.description.criteria) if criterion.is_controlling],
            dtype=np.intp,
        )


def build_table(ratings: RatingFile) -> RatingTable:
    """The table of a study. AssessmentError where it is larger than can be computed with."""
    rows = ratings.dialogues
    criteria = ratings.description.criteria
    given = np.array([[row.ratings[name] for name in ratings.description.names] for row in rows], dtype=np.float64)
    workers = sorted({row.worker for row in rows})
    systems = sorted({row.system for row in rows if not row.degraded})
    _check_size(len(workers), len(systems), len(criteria))
    assignments = {pair: number for number, pair in enumerate(dict.fromkeys((row.worker, row.hit) for row in rows))}
    number_of_worker = {name: number for number, name in enumerate(workers)}
    number_of_system = {name: number for number, name in enumerate(systems)}
    return RatingTable(
        description=ratings.description,
        ratings=_bring_to_one_direction(given, criteria),
        workers=workers,
        systems=systems,
        worker_of=np.array([number_of_worker[row.worker] for row in rows], dtype=np.intp),
        assignment_of=np.array([assignments[row.worker, row.hit] for row in rows], dtype=np.intp),
        system_of=np.array([-1 if row.degraded else number_of_system[row.system] for row in rows], dtype=np.intp),
    )


def group_rows(number_of: Integers, count: int) -> list[Integers]:
    """The indices at which each number below `count` occurs, in order."""
    order = np.argsort(number_of, kind="stable")
    return np.split(order, np.searchsorted(number_of[order], np.arange(1, count)))


def _check_size(workers: int, systems: int, criteria: int) -> None:
    if systems > MOST_SYSTEMS:
        raise AssessmentError(f"there are {systems} systems; at most {MOST_SYSTEMS} can be compared")
    if workers * systems * criteria > MOST_CELLS:
        raise AssessmentError(
            f"{workers} workers, {systems} systems and {criteria} criteria are too many for one study; split it"
        )


def _bring_to_one_direction(given: Floats, criteria: Sequence[Criterion]) -> Floats:
    low = np.array([criterion.low for criterion in criteria])
    high = np.array([criterion.high for criterion in criteria])
    is_negative = np.array([criterion.direction == "negative" for criterion in criteria])
    turned = np.where(is_negative, low + high - given, given)
    if len({(criterion.low, criterion.high) for criterion in criteria}) == 1:
        return np.asarray(turned)
    return np.asarray(COMMON_LOW + (turned - low) / (high - low) * (COMMON_HIGH - COMMON_LOW))


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
