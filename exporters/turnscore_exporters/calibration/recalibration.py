"""Recalibration: scores rated turns, fits the value of quality and a threshold to them, writes the new version.

Three changes compete with the shipped formula: a logistic curve over its weighted heads, weights of the heads by ridge
regression towards the shipped ones, and a rising curve (isotonic). The log loss over folds of whole dialogues decides;
the shipped formula stays unless a change is better by a standard error.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import JsonValue, ValidationError
from scipy.optimize import minimize
from scipy.stats import beta, binomtest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.command_line import client_of
from turnscore_assessment.errors import AgreementError, BadFileError
from turnscore_assessment.files import read_rows
from turnscore_client import AsyncTurnScoreClient, ScoreReply, TurnScoreError
from turnscore_core.scorers.quality import HEADS, QualityOptions, ValueFormula, read_heads
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_core.scoring import score_turns
from turnscore_models import Bundle, Calibration, Recall, SelfTest, Threshold, copy_bundle
from turnscore_wire import ScoreRequest, describe_refusal

from turnscore_exporters.bundles.self_test import check_empty, write_self_test
from turnscore_exporters.bundles.writer import calibrate
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import CalibrateOptions

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FOLDS = 5
LEAST_OF_A_KIND = 15  # Fewest good and fewest bad turns for any fit. Chosen: three in a fold.
PENALTIES = (0.01, 0.1, 1.0)
# Least slope over the shipped value: below it the value says nothing of these turns, and is not reversed. Chosen.
LEAST_SLOPE = 0.05
FLOOR = 0.01  # Distance of predicted probabilities from 0 and 1: a few hundred turns say nothing beyond it. Chosen.


@dataclass(frozen=True)
class RatedHeads:
    """Heads [turns, heads] of rated turns, whether people called each good, its dialogue, and its warnings."""

    heads: Floats
    good: Bools
    dialogues: Sequence[str]
    warnings: Sequence[Sequence[str]]

    def take(self, kept: Bools) -> "RatedHeads":
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
    low, high = map(float, binomtest(found, turns).proportion_ci(INTERVAL))
    return Recall(share=round(found / turns, 4), low=round(low, 4), high=round(high, 4), turns=turns)


# Shares of good turns that a table of promises names; the last one is the weakest promise that is made. Chosen: a
# threshold that may call more than three of ten good turns low separates nothing.
PROMISES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
# Folds of five that fit weights: two fifths of the dialogues; the other three make the threshold. Chosen.
FITTED_FOLDS = (0, 1)


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
    folds = assign_folds(rated.dialogues)
    fitted = np.isin(folds, FITTED_FOLDS)
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


LABELS = {"good": True, "bad": False}
_SAID = ("context", "response", "messages")
_SHARED_WORDS = 5  # Words of a context's first text by which two turns without an id count as one dialogue's. Chosen.


@dataclass(frozen=True)
class RatedTurns:
    """Turns, whether people called each good, and each turn's dialogue."""

    turns: Sequence[TurnToScore]
    good: Sequence[bool]
    dialogues: Sequence[str]

    @property
    def sharing(self) -> int:
        """How many turns share a dialogue with an earlier one."""
        return len(self.dialogues) - len(set(self.dialogues))


def read_rated_turns(path: Path, good_from: float | None = None) -> RatedTurns:
    """Rows of `context` and `response`, or `messages`, as requests have them, with a `label` or a `rating`.

    `label` is "good" or "bad"; a turn whose `rating` is at least `good_from` is good. `dialogue` names the dialogue;
    without it, turns whose contexts begin with the same text of five words or more count as one dialogue's. Raises
    BadFileError naming the row.
    """
    turns: list[TurnToScore] = []
    good: list[bool] = []
    dialogues: list[str] = []
    for number, row in read_rows(path):
        turns.append(_read_turn(path, number, row))
        good.append(_is_good(path, number, row, good_from))
        dialogues.append(_dialogue_of(number, row, turns[-1]))
    return RatedTurns(turns, good, dialogues)


def _read_turn(path: Path, number: int, row: dict[str, Any]) -> TurnToScore:
    if row.get("options"):
        raise BadFileError(path, number, "has `options`; remove them: the turns are scored without any")
    try:
        request = ScoreRequest.model_validate({name: row[name] for name in _SAID if name in row})
    except ValidationError as error:
        field, message = describe_refusal(error)
        raise BadFileError(path, number, f"{field}: {message}") from error
    return TurnToScore(request.context, request.response)


def _is_good(path: Path, number: int, row: dict[str, Any], good_from: float | None) -> bool:
    label, rating = row.get("label"), row.get("rating")
    if label is not None:
        if not isinstance(label, str) or label not in LABELS:
            raise BadFileError(path, number, "`label` must be good or bad")
        return LABELS[label]
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not math.isfinite(rating):
        raise BadFileError(path, number, "must have a `label`, or a number as `rating`")
    if good_from is None:
        raise BadFileError(
            path, number, "has a `rating` and no `label`: give --good-from, the rating from which a turn is good"
        )
    return rating >= good_from


def _dialogue_of(number: int, row: dict[str, Any], turn: TurnToScore) -> str:
    if row.get("dialogue") is not None:
        return f"named {row['dialogue']}"
    opening = turn.context[0].text.split() if turn.context else []
    return f"begins {' '.join(opening)}" if len(opening) >= _SHARED_WORDS else f"row {number}"


_FIRST_SECOND = datetime(2020, 1, 1, tzinfo=UTC).timestamp()  # A part of a version has at most nine digits.
QUALITY = "quality"
ITEMS_PER_CALL = 64  # Turns in one batch request. Chosen: what a service admits along with others' work.


def run_calibration(options: CalibrateOptions) -> Iterator[str]:
    """Writes the bundle's new version and says what was found, a line for each finding, warnings among them.

    A running service scores the turns where the options name one. Raises ExporterError where the turns or the bundle
    are not suitable.
    """
    check_empty(options.output)
    rated = read_rated_turns(options.file, options.good_from)
    rate = choose_rate(sum(rated.good), options.false_alarms)
    named = options.bundle or options.scorer
    loaded = load_bundles([named]).get(options.scorer)
    if loaded is None:
        raise ExporterError(f"{named} is not a bundle of the scorer {options.scorer}; --bundle names one")
    manifest, curve = loaded.bundle.manifest, loaded.bundle.calibration()
    if options.url is None:
        scores = score_turns(loaded, rated.turns)
    else:
        client = client_of(options.url)()
        scores = asyncio.run(score_by_service(client, options.scorer, loaded.bundle.digest, rated.turns))
    source = f"{len(rated.good)} rated turns of {len(set(rated.dialogues))} dialogues, {sum(rated.good)} of them good"
    if options.scorer == QUALITY:
        heads = RatedHeads(
            np.array([[each.details[name] for name in HEADS] for each in scores]),
            np.array(rated.good),
            rated.dialogues,
            [find_repeats(turn.context, turn.response) for turn in map(loaded.trim, rated.turns)],
        )
        shipped = QualityOptions.model_validate(manifest.options).value
        choice, found = calibrate_formula(heads, shipped, rate=rate, source=source)
        curve = _new_curve(curve, choice, shipped, heads)
        if found.good_threshold is None and choice.formula == shipped:
            found = replace(found, good_threshold=manifest.good_threshold)
    else:
        threshold = make_threshold([each.value for each in scores], rated.good, rate, source)
        found = ThresholdCalibration(None, threshold, manifest.good_threshold, len(scores))
    bundle = _write(options, loaded.bundle, found, curve)
    yield from describe(rated, found, options.false_alarms)
    yield f"{bundle.manifest.reference} written to {options.output}"


async def score_by_service(
    client: AsyncTurnScoreClient, scorer: str, digest: str, turns: Sequence[TurnToScore]
) -> list[RawScore]:
    """The scores of a running service. Raises AgreementError where it fails, or serves another bundle.

    It also raises where the service answers some conversations by another version, or changes its version meanwhile.
    """
    scores: list[RawScore] = []
    async with client:
        try:
            served = {model.scorer: model for model in (await client.models()).models}
            if scorer not in served or served[scorer].digest != digest:
                raise AgreementError(
                    f"the service does not serve this bundle of {scorer}; --bundle names the one it does"
                )
            for start in range(0, len(turns), ITEMS_PER_CALL):
                items = [
                    {"context": list(turn.context), "response": turn.response, "scorers": [scorer]}
                    for turn in turns[start : start + ITEMS_PER_CALL]
                ]
                for place, result in enumerate((await client.score_batch(items)).results):
                    if not isinstance(result, ScoreReply):
                        raise AgreementError(f"turn {start + place + 1}: {result.error.message}")
                    score, listed = result.scores[scorer], served[scorer].model
                    if score.model != listed:
                        raise AgreementError(
                            f"turn {start + place + 1} was answered by {score.model}, not by {listed}: the service "
                            "must neither split nor change its versions"
                        )
                    scores.append(RawScore(score.value, score.details))
        except TurnScoreError as error:
            raise AgreementError(f"the service does not answer: {error}") from error
    return scores


def _new_curve(known: Calibration, choice: Choice, shipped: ValueFormula, rated: RatedHeads) -> Calibration:
    """The percentiles of the new value: over the same turns where their order stays, else over the rated ones.

    A rising curve over the value moves each percentile as it moves the value.
    """
    if choice.formula == shipped:
        return known
    if not choice.keeps_order:
        values = choice.formula.values_of(weigh_rated(choice.formula, rated)).tolist()
        return calibrate(values, "the rated turns that this version was calibrated on")
    weighed = _weighed_of(np.array(known.percentiles), shipped)
    slope, bias = _line_between(shipped, choice.formula)
    moved = np.maximum.accumulate(choice.formula.values_of(slope * weighed + bias))
    return known.model_copy(update={"percentiles": [round(float(each), 6) for each in moved]})


def _line_between(shipped: ValueFormula, new: ValueFormula) -> tuple[float, float]:
    """Slope and bias from the shipped formula's weighted sum to that of a formula with the same order."""
    name = max(shipped.weights, key=lambda each: abs(shipped.weights[each]))
    slope = new.weights[name] / shipped.weights[name]
    return slope, new.bias - slope * shipped.bias


def _weighed_of(values: np.ndarray, formula: ValueFormula) -> np.ndarray:
    """The formula's weighted sums of its values; for a flat piece of its curve the middle of the sums."""
    sums = np.linspace(-15.0, 15.0, 30_001)
    found = formula.values_of(sums)
    low, high = np.searchsorted(found, values - 1e-9), np.searchsorted(found, values + 1e-9)
    middle = np.clip((low + np.maximum(high, low + 1) - 1) // 2, 0, len(sums) - 1)
    return np.asarray(sums[middle])


def _write(options: CalibrateOptions, bundle: Bundle, found: ThresholdCalibration, curve: Calibration) -> Bundle:
    copied = copy_bundle(bundle, options.output)
    old = copied.manifest
    changed: dict[str, JsonValue] = dict(old.options)
    agreement: dict[str, JsonValue] = dict(old.agreement)
    if (choice := found.choice) is not None:
        changed["value"] = choice.formula.model_dump(mode="json")
        agreement["recalibration"] = {"of": old.reference, "way": choice.way, "log_loss": {**choice.losses}}
    manifest = old.model_copy(
        update={
            "version": options.new_version or _next_version(old.version),
            "options": changed,
            "threshold": found.threshold,
            "good_threshold": found.good_threshold,
            "agreement": agreement,
        }
    )
    write_json(copied.path_of(manifest.calibration), curve)
    test = bundle.self_test()
    turns = [each.model_copy(update={"value": None, "graphs": {}}) for each in test.turns]
    return write_self_test(copied, manifest, SelfTest(turns=turns))


def _next_version(version: str) -> str:
    """The version with the seconds since 2020 as its last part: a later run makes a higher one, wherever it writes."""
    major, minor, _ = version.split(".")
    return f"{major}.{minor}.{int(time.time() - _FIRST_SECOND)}"


def describe(rated: RatedTurns, found: ThresholdCalibration, asked_rate: float) -> Iterator[str]:
    """A line for each finding, warnings among them."""
    threshold, choice = found.threshold, found.choice
    bad = len(rated.good) - sum(rated.good)
    yield f"{len(rated.good)} rated turns, {sum(rated.good)} good and {bad} bad"
    if rated.sharing:
        yield f"{describe_sharing(rated.sharing)}: rate turns of different dialogues"
    if choice is not None:
        yield f"value: {choice.way}"
        for way, loss in sorted(choice.losses.items(), key=lambda each: each[1]):
            yield f"  log loss {loss:.4f} over folds of dialogues: {way}"
        if not choice.keeps_order:
            yield "note: percentiles of the value are now among the rated turns, as the heads have new weights"
    yield (
        f"threshold {threshold.value:.4f}, of {found.threshold_turns} turns: calls at most "
        f"{threshold.false_alarm_rate:.1%} of good turns low, with {threshold.confidence:.0%} confidence"
    )
    if threshold.false_alarm_rate != asked_rate:
        yield f"warning: {sum(rated.good)} good turns allow no smaller share. {describe_promises()}"
    if threshold.recall is None:
        yield "warning: no turn is bad, so what the threshold will find is unknown"
    else:
        recall = threshold.recall
        yield f"finds {recall.share:.0%} of bad turns ({recall.low:.0%} to {recall.high:.0%}, of {recall.turns})"
    if choice is not None and found.good_threshold is None:
        yield f"note: no turn is labelled good; with {least_good_turns(asked_rate)} bad ones, that has a threshold, too"
