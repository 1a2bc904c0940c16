"""One calibration as the command asks for it: scores the rated turns, fits, writes the bundle's new version."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import JsonValue
from turnscore_assessment.agreement.bundles import load_bundles, score_turns
from turnscore_assessment.errors import AgreementError
from turnscore_client import AsyncTurnScoreClient, ScoreReply, TurnScoreError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.quality import QualityOptions, ValueFormula
from turnscore_core.scorers.quality_rows import HEADS
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_models import Bundle, Calibration, SelfTest, Threshold, copy_bundle

from turnscore_exporters.bundles.self_test import write_self_test
from turnscore_exporters.bundles.writer import calibrate
from turnscore_exporters.calibration.calibration import calibrate_formula, check_counts, make_threshold
from turnscore_exporters.calibration.rated_file import RatedTurns, read_rated_turns
from turnscore_exporters.calibration.recalibration import Choice, RatedHeads, weigh_rated
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json

QUALITY = "quality"
ITEMS_PER_CALL = 64
"""Turns in one batch request. Chosen: what a service admits beside others' work."""


@dataclass(frozen=True, kw_only=True)
class CalibrationJob:
    """The command's options."""

    file: Path
    scorer: str
    bundle: str
    output: Path
    version: str | None
    good_from: float | None
    rate: float
    open_client: Callable[[], AsyncTurnScoreClient] | None = None
    """Address of a running service that scores the turns instead of this process."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What the calibration made, for the report."""

    bundle: Bundle
    rated: RatedTurns
    threshold: Threshold
    threshold_turns: int
    choice: Choice | None
    """None for scorers other than quality, whose value stays as it is."""


def run_calibration_job(job: CalibrationJob) -> Calibrated:
    """Writes the bundle's new version. Raises ExporterError where the turns or the bundle are not suitable."""
    if job.output.exists() and any(job.output.iterdir()):
        raise ExporterError(f"{job.output}: is not empty; choose another folder")
    rated = read_rated_turns(job.file, job.good_from)
    check_counts(rated.good, job.rate)
    loaded = load_bundles([job.bundle]).get(job.scorer)
    if loaded is None:
        raise ExporterError(f"{job.bundle} is not a bundle of the scorer {job.scorer}; --bundle names one")
    scores = _score(job, loaded, rated.turns)
    source = f"{len(rated.good)} rated turns of {len(set(rated.dialogues))} dialogues, {sum(rated.good)} of them good"
    if job.scorer != QUALITY:
        threshold = make_threshold([each.value for each in scores], rated.good, job.rate, source)
        bundle = _write(job, loaded.bundle, threshold, None, loaded.bundle.calibration())
        return Calibrated(bundle=bundle, rated=rated, threshold=threshold, threshold_turns=len(scores), choice=None)
    heads = RatedHeads(
        np.array([[each.details[name] for name in HEADS] for each in scores]),
        np.array(rated.good),
        rated.dialogues,
        [find_repeats(turn.context, turn.response) for turn in map(loaded.trim, rated.turns)],
    )
    shipped = QualityOptions.model_validate(loaded.bundle.manifest.options).value
    made = calibrate_formula(heads, shipped, rate=job.rate, source=source)
    curve = _new_curve(loaded.bundle, made.choice, shipped, heads)
    bundle = _write(job, loaded.bundle, made.threshold, made.choice, curve)
    return Calibrated(
        bundle=bundle, rated=rated, threshold=made.threshold, threshold_turns=made.threshold_turns, choice=made.choice
    )


def _score(job: CalibrationJob, loaded: LoadedScorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    if job.open_client is None:
        return score_turns(loaded, turns)
    return asyncio.run(score_by_service(job.open_client(), job.scorer, loaded.bundle.digest, turns))


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


def _new_curve(bundle: Bundle, choice: Choice, shipped: ValueFormula, rated: RatedHeads) -> Calibration:
    """The percentiles of the new value: over the same turns where their order stays, else over the rated ones.

    A rising curve over the value moves each percentile as it moves the value.
    """
    known = bundle.calibration()
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


def _write(
    job: CalibrationJob, bundle: Bundle, threshold: Threshold, choice: Choice | None, curve: Calibration
) -> Bundle:
    copied = copy_bundle(bundle, job.output)
    old = copied.manifest
    options: dict[str, JsonValue] = dict(old.options)
    agreement: dict[str, JsonValue] = dict(old.agreement)
    if choice is not None:
        options["value"] = choice.formula.model_dump(mode="json")
        agreement["recalibration"] = {"of": old.reference, "way": choice.way, "log_loss": {**choice.losses}}
    manifest = old.model_copy(
        update={
            "version": job.version or _next_version(old.version),
            "options": options,
            "threshold": threshold,
            "agreement": agreement,
        }
    )
    write_json(copied.path_of(manifest.calibration), curve)
    test = bundle.self_test()
    turns = [each.model_copy(update={"value": None, "graphs": {}}) for each in test.turns]
    return write_self_test(copied, manifest, SelfTest(turns=turns))


def _next_version(version: str) -> str:
    major, minor, patch = version.split(".")
    return f"{major}.{minor}.{int(patch) + 1}"
