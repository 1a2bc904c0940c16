"""USR (Mehri and Eskenazi 2020): masked words and dialogue retrieval, and their regression on people's ratings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LinearRegression

from turnscore_exporters.baselines.encoders.checkpoints import PairCheckpoint
from turnscore_exporters.baselines.material.asked import Asked, Floats
from turnscore_exporters.baselines.systems.joint import score_pairs
from turnscore_exporters.baselines.systems.masked import score_masked
from turnscore_exporters.errors import ExporterError

MASKED, RETRIEVAL, FACTS, OVERALL = "mlm", "retrieval", "facts", "usr"
LEAST_RATED = 20
"""Fewest turns for a regression. Chosen: ten for each of its two parts."""
LEAST_SPREAD = 1e-3
"""Least relative spread of a part: standard deviation over root mean square, on the turns that fit the weights. A part
below it weighs 0: divided by such a spread, fp32's rounding (1e-7 of its size, measured) would show in the value.
Chosen: ten times what parity allows an fp32 graph.
"""


@dataclass(frozen=True, kw_only=True)
class PartWeight:
    """How a part enters the overall score: (part - center) / scale x weight."""

    center: float
    scale: float
    weight: float


@dataclass(frozen=True, kw_only=True)
class OverallFormula:
    """A regression on the parts, each standardised on the turns that it was fitted on."""

    parts: Mapping[str, PartWeight]
    bias: float

    def apply(self, found: Mapping[str, Floats]) -> Floats:
        """The overall score of each turn, from its own parts alone."""
        total: Floats = np.asarray(self.bias, dtype=np.float64)
        for name, part in self.parts.items():
            total = total + (found[name] - part.center) / part.scale * part.weight
        return total


def fit_overall(found: Mapping[str, Sequence[float] | Floats], ratings: Sequence[float]) -> OverallFormula:
    """The least squares fit of people's ratings by the parts; turns with an unknown part are left out.

    A part that varies by less than LEAST_SPREAD weighs 0. ExporterError where fewer than 20 turns are left, or no part
    varies by more.
    """
    columns = np.array([found[name] for name in found], dtype=np.float64).T
    known = ~np.isnan(columns).any(axis=1)
    columns, wanted = columns[known], np.asarray(ratings, dtype=np.float64)[known]
    if len(wanted) < LEAST_RATED:
        raise ExporterError(f"{len(wanted)} rated turns with every part; a regression needs {LEAST_RATED}")
    telling = find_telling({name: columns[:, place] for place, name in enumerate(found)})
    design = [(columns[:, list(found).index(name)] - center) / scale for name, (center, scale) in telling.items()]
    regression = LinearRegression().fit(np.array(design).T, wanted)
    weights = dict(zip(telling, map(float, regression.coef_), strict=True))
    return _write_formula(found, telling, weights, float(regression.intercept_))


def weigh_alike(found: Mapping[str, Floats]) -> OverallFormula:
    """Each part in its own standard deviations with equal weight, LEAST_SPREAD as in `fit_overall`."""
    telling = find_telling(found)
    return _write_formula(found, telling, dict.fromkeys(telling, 1 / len(telling)), 0.0)


def find_telling(found: Mapping[str, Floats]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the parts that vary; ExporterError naming every spread where none does."""
    scales = {name: (float(np.nanmean(values)), float(np.nanstd(values))) for name, values in found.items()}
    telling = {name: each for name, each in scales.items() if each[1] > LEAST_SPREAD * math.hypot(*each)}
    if not telling:
        spreads = ", ".join(f"{name} by {spread:.1g}" for name, (_, spread) in scales.items())
        raise ExporterError(f"every part is the same for all turns, or differs too little to weigh it ({spreads})")
    return telling


def _write_formula(
    names: Iterable[str], telling: Mapping[str, tuple[float, float]], weights: Mapping[str, float], bias: float
) -> OverallFormula:
    nothing = PartWeight(center=0.0, scale=1.0, weight=0.0)
    parts = {
        name: PartWeight(center=telling[name][0], scale=telling[name][1], weight=weights[name])
        if name in telling
        else nothing
        for name in names
    }
    return OverallFormula(parts=parts, bias=bias)


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
    pairs = [(each.query, each.response) for each in asked]
    return {MASKED: score_masked(masked, pairs), RETRIEVAL: score_pairs(retrieval, pairs)}
