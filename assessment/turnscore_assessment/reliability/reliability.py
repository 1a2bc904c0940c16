"""Every measure of reliability of one table, with its interval; an undefined measure has a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.figures import Floats, Interval
from turnscore_assessment.reliability.intraclass import bound_intraclass
from turnscore_assessment.reliability.krippendorff import SCALES, bound_alpha
from turnscore_assessment.reliability.rated_items import RatedItems

INTRACLASS = {
    "ICC(C,1)": "consistency",
    "ICC(C,k)": "consistency_of_mean",
    "ICC(A,1)": "agreement",
    "ICC(A,k)": "agreement_of_mean",
}
ALPHAS = {f"alpha {scale}": scale for scale in SCALES}
FIGURES = [*INTRACLASS, *ALPHAS]
NOTHING = Interval(float("nan"))


@dataclass(frozen=True, kw_only=True)
class Reliability:
    name: str
    items: int
    raters: float
    """k: how many rated an item, the harmonic mean where that differs."""
    figures: Mapping[str, Interval]
    undefined: Sequence[str]
    """Why a figure is missing."""


def measure_reliability(rated: RatedItems, rounds: int, seed: int) -> Reliability:
    table = rated.table
    figures = dict.fromkeys(FIGURES, NOTHING)
    undefined: list[str] = []
    try:
        found = bound_intraclass(table, rounds, seed)
        figures |= {name: found[field] for name, field in INTRACLASS.items()}
    except AssessmentError as error:
        undefined.append(str(error))
    for name, scale in ALPHAS.items():
        try:
            figures[name] = bound_alpha(table, scale, rounds, seed)
        except AssessmentError as error:
            undefined.append(str(error))
    return Reliability(
        name=rated.name,
        items=len(table),
        raters=_average_raters(table),
        figures=figures,
        undefined=list(dict.fromkeys(undefined)),
    )


def _average_raters(table: Floats) -> float:
    counts = (~np.isnan(table)).sum(axis=1)
    return float(len(counts) / (1 / counts).sum())
