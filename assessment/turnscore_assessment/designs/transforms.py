"""From answers to values: every step has a name, so that designs are compared only after the same steps."""

from enum import StrEnum

import numpy as np

from turnscore_assessment.designs.answer_file import OptionTable
from turnscore_assessment.designs.form import AskedCriterion, DesignKey, DesignKind
from turnscore_assessment.figures import Floats

ROUNDING = 1e-12
"""Share of the largest value below which a deviation is rounding. Chosen: float64 leaves about 1e-16."""


class Transform(StrEnum):
    """Whether raters are brought to one mean and deviation."""

    Z = "z"
    RAW = "raw"


def transform_answers(
    key: DesignKey, criterion: AskedCriterion, table: OptionTable, transform: Transform
) -> tuple[Floats, list[str]]:
    """A value for every answer, more is better, NaN for raters whose z-scores are undefined; and the steps' names."""
    steps: list[str] = []
    if key.design.is_choice:
        return _count(key.design, table, steps), steps
    values = table.answer
    if key.design.is_magnitude:
        values = np.log((values + 1) / (table.standard + 1))
        steps.append("ln((answer + 1) / (standard + 1))")
    if criterion.direction == "negative":
        assert key.scale is not None
        values = -values if key.design.is_magnitude else key.scale.low + key.scale.high - values
        steps.append("sign turned" if key.design.is_magnitude else "reversed: low + high - answer")
    if transform is Transform.Z:
        values = _standardize(values, table)
        steps.append("z per rater and criterion, n - 1")
    return np.asarray(values), steps or ["none: raw answers"]


def _count(design: DesignKind, table: OptionTable, steps: list[str]) -> Floats:
    """Counting scores, whose mean over a system's appearances is (best - worst) / shown, and the like."""
    if design is DesignKind.BEST_WORST:
        steps.append("counts: best 1, worst -1, others 0")
        values = 2 - table.answer
    elif design is DesignKind.PAIRWISE:
        steps.append("counts: better 1, tie 1/2, other 0")
        values = 2 - table.answer
    else:
        steps.append("ranks: best 1 to worst -1, evenly spaced")
        shown = np.bincount(table.question)[table.question]
        values = 1 - 2 * (table.answer - 1) / np.maximum(shown - 1, 1)
    return np.asarray(values)


def _standardize(values: Floats, table: OptionTable) -> Floats:
    counts = np.bincount(table.rater)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = values - (np.bincount(table.rater, values) / counts)[table.rater]
        deviations = np.sqrt(np.bincount(table.rater, distances**2) / (counts - 1))[table.rater]
        is_spread = deviations > ROUNDING * np.abs(values).max()
        return np.where(is_spread, distances / deviations, np.nan)
