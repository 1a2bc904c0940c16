"""Thresholds for "bad turn" that promise how many good turns they call bad. Pure; knows no scorer.

Of n good turns, drawn like those to come, the k-th smallest value lies above a share of all good turns that has the
distribution Beta(k, n - k + 1), whatever the values' own distribution. So the largest k whose share stays within the
asked rate with the asked probability promises that rate, and finds the most bad turns (Wilks 1941; in conformal
prediction Vovk 2012).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta
from turnscore_core.scorers.quality import ValueFormula
from turnscore_models import Recall, Threshold

from turnscore_exporters.calibration.recalibration import Choice, RatedHeads, assign_folds, choose_formula, weigh_rated
from turnscore_exporters.errors import ExporterError

CONFIDENCE = 0.95
INTERVAL = 0.95


def least_good_turns(rate: float, confidence: float = CONFIDENCE) -> int:
    """How many good turns the promise of that rate needs at least: 59 for 5 %."""
    return int(np.ceil(np.log(1 - confidence) / np.log(1 - rate)))


def choose_order(good_turns: int, rate: float, confidence: float = CONFIDENCE) -> int:
    """The largest k that keeps the promise; ExporterError where there are too few good turns for any."""
    orders = np.arange(1, good_turns + 1)
    kept = orders[beta.cdf(rate, orders, good_turns - orders + 1) >= confidence]
    if not len(kept):
        raise ExporterError(
            f"{good_turns} good turns: to call at most {rate:.0%} of good turns bad, with {confidence:.0%} confidence, "
            f"takes at least {least_good_turns(rate, confidence)}"
        )
    return int(kept[-1])


def find_threshold(good: Sequence[float], rate: float, confidence: float = CONFIDENCE) -> float:
    """The highest value below which turns may be called bad. Raises as `choose_order` does."""
    return float(np.sort(good)[choose_order(len(good), rate, confidence) - 1])


def measure_recall(bad: Sequence[float], threshold: float) -> Recall | None:
    """The share of the bad turns that lies below, as `measure_share` gives it."""
    return measure_share(np.asarray(bad) < threshold)


def measure_share(hits: ArrayLike) -> Recall | None:
    """The share of hits with its exact interval (Clopper and Pearson 1934); None where there is nothing to count."""
    counted = np.asarray(hits, dtype=bool)
    turns, found = len(counted), int(counted.sum())
    if not turns:
        return None
    tail = (1 - INTERVAL) / 2
    low = float(beta.ppf(tail, found, turns - found + 1)) if found else 0.0
    high = float(beta.ppf(1 - tail, found + 1, turns - found)) if found < turns else 1.0
    return Recall(share=round(found / turns, 4), low=round(low, 4), high=round(high, 4), turns=turns)


LEAST_TURNS = 60
FITTED_FOLDS = (0, 1)
"""Folds of five that fit weights: two fifths of the dialogues; the other three make the threshold. Chosen."""


@dataclass(frozen=True)
class ThresholdCalibration:
    """What a calibration found in the rated turns."""

    choice: Choice
    threshold: Threshold
    threshold_turns: int
    """How many turns the threshold was made of."""


def calibrate_formula(rated: RatedHeads, shipped: ValueFormula, *, rate: float, source: str) -> ThresholdCalibration:
    """The formula, and a threshold that calls at most `rate` of the good turns low, with 95 % confidence.

    Raises ExporterError where there are fewer than 60 turns or too few good ones.
    """
    check_counts(rated.good.tolist(), rate)
    folds = assign_folds(rated.dialogues)
    fitted = np.isin(folds, FITTED_FOLDS)
    held = rated.take(~fitted)
    choice, measured = choose_formula(rated, shipped, with_weights=False), rated
    if int(held.good.sum()) >= least_good_turns(rate):
        reweighted = choose_formula(rated.take(fitted), shipped, with_weights=True)
        if not reweighted.keeps_order:
            choice, measured = reweighted, held
    values = choice.formula.values_of(weigh_rated(choice.formula, measured))
    return ThresholdCalibration(
        choice, make_threshold(values.tolist(), measured.good.tolist(), rate, source), len(values)
    )


def make_threshold(values: Sequence[float], good: Sequence[bool], rate: float, source: str) -> Threshold:
    """The threshold over rated values, with what it will find. Raises as `find_threshold` does."""
    threshold = find_threshold([value for value, is_good in zip(values, good, strict=True) if is_good], rate)
    recall: Recall | None = measure_recall(
        [value for value, is_good in zip(values, good, strict=True) if not is_good], threshold
    )
    return Threshold(value=threshold, source=source, false_alarm_rate=rate, confidence=CONFIDENCE, recall=recall)


def check_counts(good: Sequence[bool], rate: float) -> None:
    """Raises ExporterError where the turns are too few."""
    if len(good) < LEAST_TURNS:
        raise ExporterError(f"{len(good)} rated turns; at least {LEAST_TURNS} are needed")
    least = least_good_turns(rate)
    if sum(good) < least:
        raise ExporterError(
            f"{sum(good)} of {len(good)} turns are good; to call at most {rate:.0%} of good turns bad, with "
            f"{CONFIDENCE:.0%} confidence, takes at least {least}"
        )
