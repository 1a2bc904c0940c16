"""The bundle of `reaction`: the heads for user turns in a bundle of quality, calibrated on judged user turns.

Probabilities are those of a turn drawn at random. A third of the judged turns was drawn by words that make a signal
likely, so each signal's bias is moved by the difference of its log odds.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.data.dialogues import (
    STATED,
    USER_TURNS_FILE,
    LabelledTurn,
    read_judged_user_turns,
    read_population,
)
from turnscore_assessment.figures import compute_spearman
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.quality import logits_of
from turnscore_core.scorers.reaction import REACTIONS, SIGNALS, ReactionOptions
from turnscore_core.scoring import score_turns
from turnscore_models import Bundle, SharedFiles, write_bundle
from turnscore_models.store import resolve

from turnscore_exporters.bundles.self_test import build_self_test, check_empty, self_test_turns, write_self_test
from turnscore_exporters.bundles.writer import calibrate
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import ReactionExportOptions
from turnscore_exporters.rebuild_bundle import draw_turns

KIND = "reaction"
FITTED_ON = ("choose", "calibrate")
RANDOM = "random"  # How a turn was drawn that shows how rare signals are.

Floats = NDArray[np.float64]


def export_reaction(options: ReactionExportOptions) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`; encoder and heads stay in the bundle of quality.

    Raises ExporterError where that is none, or the folder is in use.
    """
    quality = resolve(options.bundle)
    if quality.manifest.kind != "quality" or KIND not in quality.manifest.heads:
        raise ExporterError(f"{quality.manifest.reference} is no bundle of quality with heads for user turns")
    check_empty(options.output)
    judged = list(read_judged_user_turns(options.data / USER_TURNS_FILE))
    fitted = [turn for turn in judged if turn.split in FITTED_ON]
    report = [turn for turn in judged if turn.split == "report"]
    reference = draw_turns(read_population(options.data).turns_of("user"), options.turns, seed=0)
    layout = {"layout": quality.manifest.options["layout"]}
    as_read: JsonValue = {name: {"slope": 1.0, "bias": 0.0} for name in REACTIONS}
    draft = _write(quality, options, {**layout, "calibrated": as_read, "thresholds": {}})
    found = score_user_turns(draft, [*fitted, *report, *reference])
    first, rest = len(fitted), len(fitted) + len(report)
    ready = ReactionOptions.model_validate({**layout, **fit_reaction(found[:first], fitted, judged)})
    calibrated = calibrate_heads(found, ready)
    agreement = measure_reaction(calibrated[first:rest], report, ready.thresholds)
    source = f"{STATED}: {len(reference)} of the user turns before them; values of the graph {choose_variant(draft)}"
    write_json(draft.path_of(draft.manifest.calibration), calibrate(calibrated[rest:, 0].tolist(), source))
    manifest = draft.manifest.model_copy(
        update={"options": ready.model_dump(mode="json"), "agreement": {"report": agreement}}
    )
    return write_self_test(draft, manifest, draft.self_test())


def _write(quality: Bundle, options: ReactionExportOptions, described: Mapping[str, JsonValue]) -> Bundle:
    """A bundle of the heads as they are, with a self-test and percentiles that say nothing yet."""
    manifest = quality.manifest
    graphs = [file for graph in manifest.graphs.values() for file in graph.files]
    heads = manifest.heads[KIND]
    turns = self_test_turns(KIND)
    test = build_self_test(turns, [None] * len(turns))
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / manifest.calibration, calibrate([0.0, 1.0], "nothing yet"))
    write_json(options.output / manifest.self_test, test)
    update = {
        "name": KIND,
        "kind": KIND,
        "version": options.version,
        "heads": {KIND: heads},
        "shared": SharedFiles(bundle=manifest.name, files=[*graphs, manifest.tokenizer, heads.file]),
        "options": dict(described),
        "agreement": {},
        "threshold": None,
        "good_threshold": None,
    }
    made = write_bundle(options.output, manifest.model_copy(update=update), [quality.folder])
    return write_self_test(made, made.manifest, test)


def score_user_turns(bundle: Bundle, turns: Sequence[LabelledTurn]) -> Floats:
    """Satisfaction and signals [turns, heads], as the service gives them."""
    loaded = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
    raw = score_turns(loaded, [loaded.trim(make_turn(turn.context, turn.response)) for turn in turns])
    return np.array([[each.value, *(each.details[name] for name in SIGNALS)] for each in raw])


def fit_reaction(found: Floats, turns: Sequence[LabelledTurn], judged: Sequence[LabelledTurn]) -> dict[str, JsonValue]:
    """Calibration and thresholds from the heads [turns, heads] of these turns.

    One slope serves all signals: of some there are a handful. A threshold is the one that would give the greatest F1
    if the probabilities of these turns were right, which they say themselves without their few positives.
    `judged` are all judged turns, whose random part says how rare a signal is.
    """
    logits = logits_of(found)
    satisfied = np.array([turn.labels["satisfaction"] for turn in turns])
    column = np.concatenate([logits[:, 0], logits[:, 0]])[:, None]
    outcomes = np.repeat([1, 0], len(turns))
    curve = LogisticRegression(C=1e6).fit(column, outcomes, np.concatenate([satisfied, 1 - satisfied]))
    calibrated: dict[str, JsonValue] = {
        "satisfaction": {"slope": round(float(curve.coef_[0, 0]), 4), "bias": round(float(curve.intercept_[0]), 4)}
    }
    shown = shown_by(turns)
    count = len(SIGNALS)
    places = np.kron(np.eye(count), np.ones((len(turns), 1)))
    design = np.hstack([logits[:, 1:].T.reshape(-1, 1), places])
    model = LogisticRegression(C=10.0, fit_intercept=False, max_iter=5000).fit(design, shown.T.ravel())
    slope, biases = model.coef_[0, 0], model.coef_[0, 1:]
    thresholds: dict[str, JsonValue] = {}
    drawn = shown_by([turn for turn in judged if turn.system == RANDOM])
    for place, name in enumerate(SIGNALS):
        rarer = _log_odds(drawn[:, place]) - _log_odds(shown[:, place])
        here = 1 / (1 + np.exp(-(slope * logits[:, 1 + place] + biases[place])))
        least = _best_threshold(here)
        thresholds[name] = round(float(1 / (1 + np.exp(-(np.log(least / (1 - least)) + rarer)))), 4)
        calibrated[name] = {"slope": round(float(slope), 4), "bias": round(float(biases[place] + rarer), 4)}
    return {"calibrated": calibrated, "thresholds": thresholds}


def shown_by(turns: Sequence[LabelledTurn]) -> Floats:
    """Which signals each turn shows: 0 or 1 [turns, signals]."""
    return np.array([[turn.labels.get(name, 0.0) for name in SIGNALS] for turn in turns])


def _log_odds(shown: Floats) -> float:
    share = (shown.sum() + 0.5) / (len(shown) + 1)
    return float(np.log(share / (1 - share)))


def _best_threshold(probabilities: Floats) -> float:
    """Half the greatest F1 that they promise: where a further turn no longer raises it."""
    falling = np.sort(probabilities)[::-1]
    promised = 2 * np.cumsum(falling) / (falling.sum() + np.arange(1, len(falling) + 1))
    return float(np.clip(promised.max() / 2, 0.02, 0.98))


def calibrate_heads(found: Floats, options: ReactionOptions) -> Floats:
    """What the scorer with these options makes of heads [turns, heads]."""
    slopes = np.array([options.calibrated[name].slope for name in REACTIONS])
    biases = np.array([options.calibrated[name].bias for name in REACTIONS])
    calibrated: Floats = 1 / (1 + np.exp(-(logits_of(found) * slopes + biases)))
    return calibrated


def measure_reaction(
    found: Floats, turns: Sequence[LabelledTurn], thresholds: Mapping[str, float]
) -> dict[str, JsonValue]:
    """Spearman of the satisfaction, F1 of each signal at its threshold, and how many turns show it."""
    shown = shown_by(turns)
    satisfied = [turn.labels["satisfaction"] for turn in turns]
    f1 = {
        name: round(float(f1_score(shown[:, place], found[:, 1 + place] >= thresholds[name], zero_division=0)), 4)
        for place, name in enumerate(SIGNALS)
    }
    return {
        "turns": len(turns),
        "satisfaction_spearman": round(compute_spearman(found[:, 0], satisfied), 4),
        "f1": dict(f1),
        "shown": {name: int(count) for name, count in zip(SIGNALS, shown.sum(0), strict=True)},
    }
