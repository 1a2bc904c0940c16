"""One calibration: reads rated turns, scores them, fits, writes the bundle's new version and says what was found."""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue
from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.command_line import client_of
from turnscore_assessment.errors import AgreementError, BadFileError
from turnscore_assessment.files import check_row, read_rows
from turnscore_client import AsyncTurnScoreClient, ScoreReply, TurnScoreError
from turnscore_core.scorers.quality import HEADS, QualityOptions, ValueFormula
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import Bundle, copy_bundle
from turnscore_models.manifest import Calibration, SelfTest
from turnscore_wire import ScoreRequest

from turnscore_exporters.bundles.self_test import check_empty, write_self_test
from turnscore_exporters.bundles.writer import calibrate
from turnscore_exporters.calibration import recalibration
from turnscore_exporters.calibration.recalibration import Choice, RatedHeads, ThresholdCalibration
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import CalibrateOptions

LABELS = {"good": True, "bad": False}
_SAID = ("context", "response", "messages")
_SHARED_WORDS = 5  # Words of a context's first text by which two turns without an id count as one dialogue's.


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
    said = {name: row[name] for name in _SAID if name in row}
    request = check_row(ScoreRequest.model_validate, path, number, said)
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
    rate = recalibration.choose_rate(sum(rated.good), options.false_alarms)
    named = options.bundle or options.scorer
    loaded = load_bundles([named]).get(options.scorer)
    if loaded is None:
        raise ExporterError(f"{named} is not a bundle of the scorer {options.scorer}; --bundle names one")
    manifest, curve = loaded.bundle.manifest, loaded.bundle.calibration()
    if options.url is None:
        scores = score_turns(loaded, rated.turns)
    else:
        client = client_of(options.url)
        scores = asyncio.run(score_by_service(client, options.scorer, loaded.bundle.digest, rated.turns))
    source = f"{len(rated.good)} rated turns of {len(set(rated.dialogues))} dialogues, {sum(rated.good)} of them good"
    if options.scorer == QUALITY:
        heads = RatedHeads(
            np.array([[each.details[name] for name in HEADS] for each in scores]),
            np.array(rated.good),
            rated.dialogues,
            [find_repeats(turn.context, turn.response) for turn in map(loaded.scorer.trim, rated.turns)],
        )
        shipped = QualityOptions.model_validate(manifest.options).value
        choice, found = recalibration.calibrate_formula(heads, shipped, rate=rate, source=source)
        curve = _new_curve(curve, choice, shipped, heads)
        if found.good_threshold is None and choice.formula == shipped:
            found = replace(found, good_threshold=manifest.good_threshold)
    else:
        threshold = recalibration.make_threshold([each.value for each in scores], rated.good, rate, source)
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
        values = choice.formula.values_of(recalibration.weigh_rated(choice.formula, rated)).tolist()
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
        yield f"{recalibration.describe_sharing(rated.sharing)}: rate turns of different dialogues"
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
        yield f"warning: {sum(rated.good)} good turns allow no smaller share. {recalibration.describe_promises()}"
    if threshold.recall is None:
        yield "warning: no turn is bad, so what the threshold will find is unknown"
    else:
        recall = threshold.recall
        yield f"finds {recall.share:.0%} of bad turns ({recall.low:.0%} to {recall.high:.0%}, of {recall.turns})"
    if choice is not None and found.good_threshold is None:
        least = recalibration.least_good_turns(asked_rate)
        yield f"note: no turn is labelled good; with {least} bad ones, that has a threshold, too"
