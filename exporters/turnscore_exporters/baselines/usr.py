"""USR (Mehri and Eskenazi 2020): masked words and dialogue retrieval, and their regression on what people said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LinearRegression

from turnscore_exporters.baselines.asked import Asked, Floats
from turnscore_exporters.baselines.checkpoints import PairCheckpoint
from turnscore_exporters.baselines.joint import score_pairs
from turnscore_exporters.baselines.masked import score_masked
from turnscore_exporters.errors import ExporterError

MASKED, RETRIEVAL, FACTS, OVERALL = "mlm", "retrieval", "facts", "usr"
LEAST_RATED = 20
"""Turns for a regression. Chosen: ten for each of its two parts."""


@dataclass(frozen=True, kw_only=True)
class PartWeight:
    """How a part enters the overall score: (part - center) / scale x weight."""

    center: float
    scale: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class OverallFormula:
    """A regression on the parts, each brought to mean 0 and variance 1 on the turns that it was fitted on."""

    parts: Mapping[str, PartWeight]
    bias: float

    def apply(self, found: Mapping[str, Floats]) -> Floats:
        """The overall score of each turn, of its own parts alone."""
        total: Floats = np.asarray(self.bias, dtype=np.float64)
        for name, part in self.parts.items():
            total = total + (found[name] - part.center) / part.scale * part.weight
        return total


def fit_overall(found: Mapping[str, Sequence[float] | Floats], ratings: Sequence[float]) -> OverallFormula:
    """The least squares of people's ratings on the parts; turns of which a part is unknown are left out.

    ExporterError where fewer than 20 are left, or a part is the same for all of them.
    """
    columns = np.array([found[name] for name in found], dtype=np.float64).T
    known = ~np.isnan(columns).any(axis=1)
    columns, wanted = columns[known], np.asarray(ratings, dtype=np.float64)[known]
    if len(wanted) < LEAST_RATED:
        raise ExporterError(f"{len(wanted)} rated turns with every part; a regression needs {LEAST_RATED}")
    center, scale = columns.mean(0), columns.std(0)
    for name, spread in zip(found, scale, strict=True):
        if not spread > 0:
            raise ExporterError(f"the part {name} is the same for all {len(wanted)} rated turns")
    regression = LinearRegression().fit((columns - center) / scale, wanted)
    return OverallFormula(
        parts={
            name: PartWeight(center=float(middle), scale=float(spread), weight=float(weight))
            for name, middle, spread, weight in zip(found, center, scale, regression.coef_, strict=True)
        },
        bias=float(regression.intercept_),
    )


@dataclass(frozen=True, kw_only=True)
class Usr:
    """The trained system. Without facts there is no part of them."""

    masked: PairCheckpoint
    retrieval: PairCheckpoint
    formula: OverallFormula

    def score(self, asked: Sequence[Asked]) -> dict[str, Floats]:
        """`usr`, `mlm` and `retrieval`."""
        found = score_parts(self.masked, self.retrieval, asked)
        return {OVERALL: self.formula.apply(found), **found}


def score_parts(masked: PairCheckpoint, retrieval: PairCheckpoint, asked: Sequence[Asked]) -> dict[str, Floats]:
    """Both parts of each turn."""
    pairs = [(each.query, each.response) for each in asked]
    return {MASKED: score_masked(masked, pairs), RETRIEVAL: score_pairs(retrieval, pairs)}
