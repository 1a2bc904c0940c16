"""Quality control: which workers rate the degraded system lower than the others. Scores no system."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from turnscore_assessment.ratings.rating_table import Flags, Integers, RatingTable, group_rows
from turnscore_assessment.scoring.standardization import measure_workers


class Verdict(StrEnum):
    """Why a worker's ratings count or do not."""

    PASSED = "passed"
    UNCONTROLLED = "the study has no degraded system"
    NOT_LOWER = "rates the degraded system no lower"
    CONSTANT = "gives one rating to everything"
    NOT_YET = "has not rated a degraded and an ordinary system"


@dataclass(frozen=True, kw_only=True)
class ControlledWorker:
    """One worker's outcome; `p` is that of the one-sided test, NaN where none was made."""

    worker: str
    verdict: Verdict
    p: float
    degraded_ratings: int
    ordinary_ratings: int

    @property
    def passes(self) -> bool:
        return self.verdict in (Verdict.PASSED, Verdict.UNCONTROLLED)


def control_quality(table: RatingTable) -> list[ControlledWorker]:
    """Every worker's outcome, by number: passes if p < `quality_control_p` that degraded ratings are lower.

    The test is Mann-Whitney's U, corrected for ties and continuity (exact for few ratings without ties), over the
    criteria that the study chose and all of a worker's HITs. In a study without a degraded system everybody passes.
    """
    is_controlled = bool(table.is_degraded.any()) and table.controlling.size > 0
    is_constant = measure_workers(table).deviation == 0
    return [
        _control(table, number, rows, is_controlled, bool(is_constant[number]))
        for number, rows in enumerate(group_rows(table.worker_of, len(table.workers)))
    ]


def find_passing(workers: Sequence[ControlledWorker]) -> Flags:
    """By a worker's number: whether the ratings count."""
    return np.array([worker.passes for worker in workers], dtype=np.bool_)


def _control(
    table: RatingTable, number: int, rows: Integers, is_controlled: bool, is_constant: bool
) -> ControlledWorker:
    chosen = table.ratings[rows][:, table.controlling]
    is_degraded = table.is_degraded[rows]
    degraded, ordinary = chosen[is_degraded].ravel(), chosen[~is_degraded].ravel()
    p = float("nan")
    if not is_controlled:
        verdict = Verdict.UNCONTROLLED
    elif is_constant:
        verdict = Verdict.CONSTANT
    elif not degraded.size or not ordinary.size:
        verdict = Verdict.NOT_YET
    else:
        p = float(stats.mannwhitneyu(degraded, ordinary, alternative="less", method="auto").pvalue)
        verdict = Verdict.PASSED if p < table.description.quality_control_p else Verdict.NOT_LOWER
    return ControlledWorker(
        worker=table.workers[number],
        verdict=verdict,
        p=p,
        degraded_ratings=degraded.size,
        ordinary_ratings=ordinary.size,
    )
