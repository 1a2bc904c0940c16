"""Findings: live values against the bundle's curve and a baseline, with verdicts and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnscore_assessment.drift.live_values import LiveValues
from turnscore_assessment.drift.stability import (
    BINS,
    LEAST_DIALOGUES,
    UNIFORM,
    estimate_covariance,
    find_clustered_limit,
    find_limit,
    find_shares,
    measure_stability,
)

FOREIGN_LIMIT = 0.05
"""Share of turns in another language for a warning. Chosen: the detector names one English turn in thousands."""


class Verdict(StrEnum):
    """The verdict on an index."""

    STABLE = "stable"
    DRIFTED = "DRIFTED"
    TOO_FEW = f"fewer than {LEAST_DIALOGUES} dialogues"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Live values against one reference."""

    against: str
    index: float
    limit: float
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One bundle's live values, their comparisons, and warnings."""

    live: LiveValues
    baseline: LiveValues | None
    comparisons: Sequence[Comparison]
    warnings: Sequence[str]

    @property
    def has_drifted(self) -> bool:
        """Whether any comparison found drift."""
        return any(each.verdict is Verdict.DRIFTED for each in self.comparisons)


def find_drift(live: Sequence[LiveValues], baseline: Sequence[LiveValues] = ()) -> list[Finding]:
    """A finding for each bundle, with a warning where the baseline is of another version."""
    known = {(each.scorer, each.model): each for each in baseline}
    return [_look_at(each, known.get((each.scorer, each.model)), baseline) for each in live]


def _look_at(live: LiveValues, baseline: LiveValues | None, all_baselines: Sequence[LiveValues]) -> Finding:
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
    return Finding(live=live, baseline=baseline, comparisons=comparisons, warnings=warnings)


def _compare(against: str, live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> Comparison:
    """`known` is the bundle's baseline, which may tell how alike a dialogue's turns are where `live` does not."""
    index = measure_stability(live.bins, UNIFORM if baseline is None else find_shares(baseline.bins))
    fewest = min(live.dialogues, live.dialogues if baseline is None else baseline.dialogues)
    verdict = Verdict.TOO_FEW
    limit = _find_limit(live, baseline, known)
    if fewest >= LEAST_DIALOGUES:
        verdict = Verdict.DRIFTED if index > limit else Verdict.STABLE
    return Comparison(against=against, index=index, limit=limit, verdict=verdict)


def _find_limit(live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> float:
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
