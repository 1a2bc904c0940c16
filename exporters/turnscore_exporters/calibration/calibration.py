"""From rated turns to a formula and a threshold that keeps its promise. Pure; reads and writes nothing.

A rising curve over the shipped value keeps the turns' order, so the threshold may be made of the very turns that fitted
it. New weights of the heads change the order: they are fitted to dialogues of their own, and only where the rest
suffices for the promise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from turnscore_core.scorers.quality import ValueFormula
from turnscore_models import Recall, Threshold

from turnscore_exporters.calibration.recalibration import (
    Choice,
    RatedHeads,
    assign_folds,
    choose_formula,
    weigh_rated,
)
from turnscore_exporters.calibration.thresholds import CONFIDENCE, find_threshold, least_good_turns, measure_recall
from turnscore_exporters.errors import ExporterError

LEAST_TURNS = 60
FITTED_FOLDS = (0, 1)
"""Folds of five that fit weights: two fifths of the dialogues; the other three make the threshold. Chosen."""


@dataclass(frozen=True)
class Calibration:
    """What a calibration found in the rated turns."""

    choice: Choice
    threshold: Threshold
    threshold_turns: int
    """How many turns the threshold was made of."""


def calibrate_formula(rated: RatedHeads, shipped: ValueFormula, *, rate: float, source: str) -> Calibration:
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
    return Calibration(choice, make_threshold(values.tolist(), measured.good.tolist(), rate, source), len(values))


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
