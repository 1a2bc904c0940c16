"""Population stability: live values against the bundle's curve and a baseline, and how far chance takes them.

The index is sum((p - q) ln(p / q)) over the bins, with half a turn more in each, so that no share is 0. Without drift
it is about chi-squared with 9 degrees of freedom over the number of independent observations (Yurdakul 2018). Turns of
one dialogue are alike, yet not the same: where single dialogues were counted, the covariance of the shares is estimated
from them, and the limit is that of a weighted sum of chi-squared variables (Rao & Scott 1981; its tail by Pearson's
three moments, Imhof 1961: by two, equal windows alarmed in 1.5 %). Where only sums are known, as in the rules of
deploy/observability, the observations are dialogues, which is safe and blind to small shifts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from turnscore_assessment.drift.live_values import BINS, LiveValues
from turnscore_assessment.figures import Floats

LEVEL = 0.01
"""Most false alarms per window without drift. Chosen; docs/compare.md has what it comes to."""
LEAST_DIALOGUES = 100
"""Fewest dialogues of a window. Chosen: with fewer, a limit finds nothing but a bot that broke."""
CLUSTERED_LEVEL = 0.0075
"""Chosen below LEVEL: the approximated tail then alarms in at most 1 % of equal windows, at .01 in 1.2 %."""
_PRIOR = 0.5  # chosen: turns added to each bin
CHI_SQUARED = float(stats.chi2.isf(LEVEL, BINS - 1))
UNIFORM = (1 / BINS,) * BINS
"""The shares of the bundle's reference turns, equal by the definition of a percentile."""


def find_shares(bins: ArrayLike) -> tuple[float, ...]:
    """The share of turns in each bin, none of them 0."""
    counts = np.asarray(bins, dtype=np.float64) + _PRIOR
    return tuple(float(each) for each in counts / counts.sum())


def measure_stability(bins: ArrayLike, reference: Sequence[float] = UNIFORM) -> float:
    """The population stability index of counted turns against reference shares; 0 where they are equal."""
    seen, expected = np.array(find_shares(bins)), np.asarray(reference, dtype=np.float64)
    return float(np.sum((seen - expected) * np.log(seen / expected)))


def find_limit(dialogues: float, reference_dialogues: float | None = None) -> float:
    """What the index exceeds without drift with probability `LEVEL`, if all turns of a dialogue fall into one bin."""
    return CHI_SQUARED * (1 / dialogues + (1 / reference_dialogues if reference_dialogues else 0.0))


def estimate_covariance(bins: ArrayLike, products: ArrayLike, dialogues: float) -> Floats:
    """The covariance of the shares, dialogues being drawn; `products`: the sum of c c' over the dialogues' counts c."""
    counts = np.asarray(bins, dtype=np.float64)
    turns = counts.sum()
    # A dialogue's rest is c - p * (its turns), so the sum of the rests' products follows from those of the counts.
    center = np.eye(BINS) - np.outer(counts / turns, np.ones(BINS))
    rests = center @ np.asarray(products, dtype=np.float64) @ center.T
    return np.asarray(rests / turns**2 * dialogues / (dialogues - 1))


def find_clustered_limit(shares: Sequence[float], covariance: Floats) -> float:
    """What the index exceeds without drift with a probability below `LEVEL`.

    `shares` are the expected ones, `covariance` is that of what is seen less what is expected.
    """
    roots = np.sqrt(np.asarray(shares, dtype=np.float64))
    weights = np.clip(np.linalg.eigvalsh(covariance / np.outer(roots, roots)), 0, None)
    first, second, third = (float((weights**power).sum()) for power in (1, 2, 3))
    freedom = second**3 / third**2
    return first + float(stats.chi2.isf(CLUSTERED_LEVEL, freedom) - freedom) * float(np.sqrt(second / freedom))


FOREIGN_LIMIT = 0.05
"""Share of turns in another language for a warning. Chosen: the detector names one English turn in thousands."""


class DriftVerdict(StrEnum):
    """The verdict on an index."""

    STABLE = "stable"
    DRIFTED = "DRIFTED"
    TOO_FEW = f"fewer than {LEAST_DIALOGUES} dialogues"


@dataclass(frozen=True, kw_only=True)
class DriftComparison:
    """Live values against one reference."""

    against: str
    index: float
    limit: float
    verdict: DriftVerdict


@dataclass(frozen=True, kw_only=True)
class DriftFinding:
    """One bundle's live values, their comparisons, and warnings."""

    live: LiveValues
    baseline: LiveValues | None
    comparisons: Sequence[DriftComparison]
    warnings: Sequence[str]

    @property
    def has_drifted(self) -> bool:
        """Whether any comparison found drift."""
        return any(each.verdict is DriftVerdict.DRIFTED for each in self.comparisons)


def find_drift(live: Sequence[LiveValues], baseline: Sequence[LiveValues] = ()) -> list[DriftFinding]:
    """A finding for each bundle, with a warning where the baseline is of another version."""
    known = {(each.scorer, each.model): each for each in baseline}
    return [_look_at(each, known.get((each.scorer, each.model)), baseline) for each in live]


def _look_at(live: LiveValues, baseline: LiveValues | None, all_baselines: Sequence[LiveValues]) -> DriftFinding:
    comparisons = []
    if any(live.bins):
        comparisons.append(_compare("bundle", live, None, baseline))
        if baseline is not None:
            comparisons.append(_compare("baseline", live, baseline, baseline))
    warnings = []
    if live.turns and live.foreign / live.turns > FOREIGN_LIMIT:
        warnings.append(f"{live.foreign / live.turns:.0%} of turns are hardly in the model's language")
    others = sorted({each.model for each in all_baselines if each.scorer == live.scorer})
    if baseline is None and others:
        warnings.append(f"the baseline is of {', '.join(others)}: take a new one with {live.model}")
    if not any(live.bins):
        warnings.append("no turn has a percentile")
    return DriftFinding(live=live, baseline=baseline, comparisons=comparisons, warnings=warnings)


def _compare(against: str, live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> DriftComparison:
    """`known` is the bundle's baseline, which may tell how alike a dialogue's turns are where `live` does not."""
    index = measure_stability(live.bins, UNIFORM if baseline is None else find_shares(baseline.bins))
    fewest = min(live.dialogues, live.dialogues if baseline is None else baseline.dialogues)
    verdict = DriftVerdict.TOO_FEW
    limit = _choose_limit(live, baseline, known)
    if fewest >= LEAST_DIALOGUES:
        verdict = DriftVerdict.DRIFTED if index > limit else DriftVerdict.STABLE
    return DriftComparison(against=against, index=index, limit=limit, verdict=verdict)


def _choose_limit(live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> float:
    sides = [live] if baseline is None else [live, baseline]
    counted = [each for each in (live, known) if each is not None and each.products and each.dialogues > 1]
    if not counted or not all(each.dialogues for each in sides):
        return find_limit(max(1.0, live.dialogues), None if baseline is None else max(1.0, baseline.dialogues))
    covariance = np.zeros((BINS, BINS))
    for side in sides:
        source = side if side in counted else counted[0]
        own = estimate_covariance(source.bins, source.products, source.dialogues)
        covariance += own * source.dialogues / side.dialogues
    shares = np.mean([UNIFORM if baseline is None else find_shares(each.bins) for each in sides], axis=0)
    return find_clustered_limit(shares.tolist(), covariance)
