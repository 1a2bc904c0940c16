"""Recalibration: fits the value of quality, and a threshold, to which turns people called good, as far as they allow.

Three changes compete with the shipped formula: a logistic curve over its weighted heads, weights of the heads by ridge
regression towards the shipped ones, and a rising curve (isotonic). The log loss over folds of whole dialogues decides;
the shipped formula stays unless a change is better by a standard error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.stats import beta, binomtest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from turnscore_assessment.figures import Flags, Floats
from turnscore_core.scorers.quality import HEADS, ValueFormula, read_heads
from turnscore_models.manifest import Recall, Threshold

from turnscore_exporters.errors import ExporterError

FOLDS = 5
LEAST_OF_A_KIND = 15  # Fewest good and fewest bad turns for any fit. Chosen: three in a fold.
PENALTIES = (0.01, 0.1, 1.0)
# Least slope over the shipped value: below it the value says nothing of these turns, and is not reversed.
LEAST_SLOPE = 0.05
FLOOR = 0.01  # Distance of predicted probabilities from 0 and 1: a few hundred turns say nothing beyond it.


@dataclass(frozen=True)
class RatedHeads:
    """Heads [turns, heads] of rated turns, whether people called each good, its dialogue, and its warnings."""

    heads: Floats
    good: Flags
    dialogues: Sequence[str]
    warnings: Sequence[Sequence[str]]

    def take(self, kept: Flags) -> "RatedHeads":
        """The rated turns that are kept."""
        names = [name for name, is_kept in zip(self.dialogues, kept, strict=True) if is_kept]
        warnings = [each for each, is_kept in zip(self.warnings, kept, strict=True) if is_kept]
        return RatedHeads(self.heads[kept], self.good[kept], names, warnings)


Fit = Callable[[RatedHeads, ValueFormula], ValueFormula | None]


@dataclass(frozen=True)
class Choice:
    """The chosen formula, how it was made, and the log loss of every way over the folds."""

    formula: ValueFormula
    way: str
    losses: dict[str, float]

    @property
    def keeps_order(self) -> bool:
        """Whether the formula orders turns as the shipped one does."""
        return not self.way.startswith(REWEIGHTED)


def weigh_rated(formula: ValueFormula, rated: RatedHeads) -> Floats:
    """The formula's weighted sum [turns], less its deductions for repeats."""
    deducted: Floats = np.array([formula.deduct(each) for each in rated.warnings])
    return formula.weigh(rated.heads) - deducted


def choose_formula(rated: RatedHeads, shipped: ValueFormula, *, with_weights: bool) -> Choice:
    """The best way over the folds, fitted to all turns; without weights, only ways that keep the order."""
    least = min(int(rated.good.sum()), int((~rated.good).sum()))
    if least < LEAST_OF_A_KIND:
        return Choice(shipped, f"{AS_SHIPPED}: {least} turns of one kind are too few to fit anything", {})
    ways = {name: fit for name, fit in _WAYS.items() if with_weights or not name.startswith(REWEIGHTED)}
    losses = {name: losses for name, fit in ways.items() if (losses := _fold_losses(rated, shipped, fit)) is not None}
    if AS_SHIPPED not in losses:
        return Choice(shipped, f"{AS_SHIPPED}: one kind of turns is all of one dialogue, too few to compare over", {})
    base = losses[AS_SHIPPED]
    best = min(losses, key=lambda name: float(losses[name].mean()))
    gain = base - losses[best]
    if best != AS_SHIPPED and gain.mean() <= gain.std(ddof=1) / np.sqrt(len(gain)):
        best = AS_SHIPPED
    formula = ways[best](rated, shipped) or shipped
    return Choice(formula, best, {name: round(float(each.mean()), 4) for name, each in losses.items()})


def assign_folds(dialogues: Sequence[str]) -> NDArray[np.int64]:
    """Each turn's fold; a dialogue's turns share one. The largest dialogues are assigned first."""
    names, counts = np.unique(np.array(dialogues, dtype=str), return_counts=True)
    sizes = np.zeros(FOLDS)
    fold_of: dict[str, int] = {}
    for place in np.argsort(-counts, kind="stable"):
        fold = int(sizes.argmin())
        fold_of[str(names[place])] = fold
        sizes[fold] += counts[place]
    return np.array([fold_of[name] for name in dialogues])


def _fold_losses(rated: RatedHeads, shipped: ValueFormula, fit: Fit) -> Floats | None:
    """Each turn's log loss by a formula fitted to the other folds; None where it could not be fitted."""
    folds = assign_folds(rated.dialogues)
    losses = np.zeros(len(folds))
    for fold in range(FOLDS):
        here = folds == fold
        if not here.any():
            continue
        others = rated.take(~here)
        if others.good.all() or not others.good.any() or (formula := fit(others, shipped)) is None:
            return None
        values = np.clip(formula.values_of(weigh_rated(formula, rated.take(here))), FLOOR, 1 - FLOOR)
        losses[here] = -np.log(np.where(rated.good[here], values, 1 - values))
    return losses


def fit_logistic(design: Any, wanted: ArrayLike, strength: float = 1e6) -> LogisticRegression:
    """Logistic regression on rows, dense or sparse, that are `wanted` from 0 to 1: each counts as both in part."""
    share = np.asarray(wanted, dtype=np.float64)
    rows = np.tile(np.arange(len(share)), 2)
    counts = np.concatenate([share, 1 - share])
    kept = counts > 0
    outcomes = np.repeat([1, 0], len(share))
    return LogisticRegression(C=strength, max_iter=1000).fit(design[rows[kept]], outcomes[kept], counts[kept])


def fit_probability(scores: Floats, wanted: ArrayLike) -> tuple[float, float]:
    """Slope and bias of the logistic curve from scores [turns] to `wanted`: called good, or a share of that."""
    model = fit_logistic(scores[:, None], wanted)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _fit_logistic(rated: RatedHeads, shipped: ValueFormula) -> ValueFormula | None:
    slope, bias = fit_probability(weigh_rated(shipped, rated), rated.good)
    if slope < LEAST_SLOPE:
        return None
    weights = {name: slope * weight for name, weight in shipped.weights.items()}
    repeats = {name: slope * taken for name, taken in shipped.repeats.items()}
    return ValueFormula(weights=weights, bias=slope * shipped.bias + bias, repeats=repeats)


def _fit_isotonic(rated: RatedHeads, shipped: ValueFormula) -> ValueFormula | None:
    plain = shipped.model_copy(update={"curve": None})
    values = plain.values_of(weigh_rated(plain, rated))
    model = IsotonicRegression(y_min=FLOOR, y_max=1 - FLOOR).fit(values, rated.good)
    points = tuple(zip(model.X_thresholds_.tolist(), model.y_thresholds_.tolist(), strict=True))
    return plain.model_copy(update={"curve": points}) if len(points) > 1 else None


def _fit_weights(penalty: float) -> Fit:
    """Logistic regression on all heads, drawn to the shipped weights; no weight falls below 0 that does not ship so."""

    def fit(rated: RatedHeads, shipped: ValueFormula) -> ValueFormula | None:
        scaled = _fit_logistic(rated, shipped)
        if scaled is None:
            return None
        columns = read_heads(rated.heads)
        centre, spread = columns.mean(0), np.maximum(columns.std(0), 1e-6)
        design = (columns - centre) / spread
        prior = np.array([scaled.weights.get(name, 0.0) for name in HEADS]) * spread
        wanted = rated.good.astype(np.float64)
        deducted = np.array([scaled.deduct(each) for each in rated.warnings])

        def loss(parameters: Floats) -> tuple[float, Floats]:
            weights, bias = parameters[:-1], parameters[-1]
            sums = design @ weights + bias - deducted
            off = 1 / (1 + np.exp(-sums)) - wanted
            away = weights - prior
            value = float(np.logaddexp(0, sums).mean() - (wanted * sums).mean() + penalty * away @ away)
            return value, np.append(design.T @ off / len(off) + 2 * penalty * away, off.mean())

        bounds = [(min(0.0, each), None) for each in prior] + [(None, None)]
        start = np.append(prior, scaled.bias + centre @ (prior / spread))
        found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
        weights = found[:-1] / spread
        return ValueFormula(
            weights={name: float(weight) for name, weight in zip(HEADS, weights, strict=True)},
            bias=float(found[-1] - centre @ weights),
            repeats=scaled.repeats,
        )

    return fit


AS_SHIPPED, REWEIGHTED = "as shipped", "weights"
_WAYS: dict[str, Fit] = {
    AS_SHIPPED: lambda _, shipped: shipped,
    "logistic": _fit_logistic,
    "isotonic": _fit_isotonic,
    **{f"{REWEIGHTED}, ridge {each:g}": _fit_weights(each) for each in PENALTIES},
}


CONFIDENCE = 0.95


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


def find_threshold(good: ArrayLike, rate: float) -> float:
    """The highest value below which turns may be called bad. Raises as `choose_order` does.

    Of n good turns, drawn like those to come, the k-th smallest value lies above a share of all good turns that has the
    distribution Beta(k, n - k + 1), whatever the values' own distribution. So the largest k whose share stays within
    the asked rate with the asked probability promises that rate, and finds the most bad turns (Wilks 1941; in conformal
    prediction Vovk 2012).
    """
    values = np.sort(good)
    return float(values[choose_order(len(values), rate) - 1])


def measure_share(hits: ArrayLike) -> Recall | None:
    """The share of hits with its exact interval (Clopper and Pearson 1934); None where there is nothing to count."""
    counted = np.asarray(hits, dtype=bool)
    turns, found = len(counted), int(counted.sum())
    if not turns:
        return None
    low, high = map(float, binomtest(found, turns).proportion_ci(0.95))
    return Recall(share=round(found / turns, 4), low=round(low, 4), high=round(high, 4), turns=turns)


# Shares of good turns that a table of promises names; the last one is the weakest promise that is made. Chosen: a
# threshold that may call more than three of ten good turns low separates nothing.
PROMISES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True)
class ThresholdCalibration:
    """What a calibration found in the rated turns."""

    choice: Choice | None  # None for scorers other than quality, whose value stays as it is.
    threshold: Threshold
    # None where the bad turns are too few; the shipped one then holds for the shipped formula.
    good_threshold: Threshold | None
    threshold_turns: int


def calibrate_formula(
    rated: RatedHeads, shipped: ValueFormula, *, rate: float, source: str
) -> tuple[Choice, ThresholdCalibration]:
    """The formula, and a threshold that calls at most `rate` of the good turns low, with 95 % confidence.

    Too few good turns get the weaker promise of `choose_rate`, which raises ExporterError where there is none.
    """
    asked, rate = rate, choose_rate(int(rated.good.sum()), rate)
    # Folds of five that fit weights: two fifths of the dialogues; the other three make the threshold.
    fitted = np.isin(assign_folds(rated.dialogues), (0, 1))
    held = rated.take(~fitted)
    choice, measured = choose_formula(rated, shipped, with_weights=False), rated
    if int(held.good.sum()) >= least_good_turns(rate):
        reweighted = choose_formula(rated.take(fitted), shipped, with_weights=True)
        if not reweighted.keeps_order:
            choice, measured = reweighted, held
    values, good = choice.formula.values_of(weigh_rated(choice.formula, measured)).tolist(), measured.good.tolist()
    threshold = make_threshold(values, good, rate, source)
    enough = len(good) - sum(good) >= least_good_turns(asked)
    good_threshold = make_good_threshold(values, good, asked, source) if enough else None
    return choice, ThresholdCalibration(choice, threshold, good_threshold, len(values))


def make_threshold(values: Sequence[float], good: Sequence[bool], rate: float, source: str) -> Threshold:
    """The threshold over rated values, with what it will find. Raises as `find_threshold` does."""
    found, is_good = np.asarray(values), np.asarray(good, dtype=bool)
    threshold = find_threshold(found[is_good], rate)
    recall = measure_share(found[~is_good] < threshold)
    return Threshold(value=threshold, source=source, false_alarm_rate=rate, confidence=CONFIDENCE, recall=recall)


def make_good_threshold(values: Sequence[float], good: Sequence[bool], rate: float, source: str) -> Threshold:
    """The value from which a turn is called good: at most `rate` of bad turns are. Raises as `find_threshold` does."""
    high = make_threshold([-value for value in values], [not each for each in good], rate, source)
    # The greatest bad value that may be called good is not: what lies above it is.
    return high.model_copy(update={"value": float(np.nextafter(-high.value, 2.0))})


def choose_rate(good_turns: int, asked: float) -> float:
    """The asked rate, or where the good turns are too few for it, the least whole percent that they can promise.

    Raises ExporterError where they promise nothing.
    """
    rates = [asked, *(percent / 100 for percent in range(1, 101) if asked < percent / 100 <= PROMISES[-1])]
    kept = [rate for rate in rates if least_good_turns(rate) <= good_turns]
    if not kept:
        raise ExporterError(f"{good_turns} good turns are too few for any promise. {describe_promises()}")
    return kept[0]


def describe_promises() -> str:
    """How many good turns each promise needs, in a sentence; `turnscore calibrate --help` has it, too."""
    needs = ", ".join(f"{least_good_turns(rate)} for {rate:.0%}" for rate in PROMISES)
    return f"Good rated turns that a share of false alarms needs, with {CONFIDENCE:.0%} confidence: {needs}."


def describe_sharing(turns: int) -> str:
    """What it means for a promise that so many turns share a dialogue with an earlier one."""
    return (
        f"warning: {turns} turns share a dialogue with another; turns of a dialogue are alike, so the promise is "
        "weaker than it says (broken in 7 to 16 % of simulated draws of whole dialogues, instead of 5 %)"
    )
