"""A quality bundle whose value counts repeats: the formula reads the warnings; graph and heads stay.

The change of its agreement with people is measured as the graph for a CPU scores, and kept in the manifest.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue
from turnscore_assessment.correlations import compute_auc, compute_spearman
from turnscore_assessment.data.labelled_turns import read_development_sets
from turnscore_core.inference.cpu_budget import usable_cpus
from turnscore_core.scorers.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.quality import QualityOptions
from turnscore_core.scorers.self_test import read_turn
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_models import Bundle, SelfTest, write_bundle

from turnscore_exporters.bundles.self_test import start_version, write_self_test
from turnscore_exporters.calibration.shipped_threshold import KIND, score_rated
from turnscore_exporters.errors import ExporterError

BEFORE, BY_GRAPH, REPORT = "before_repeats", "agreement_by_graph", "report"

Figures = dict[str, float]


def count_repeats(
    bundle: Bundle, folder: Path, version: str, output: Path, taken: Mapping[str, float]
) -> tuple[Bundle, Figures, Figures]:
    """Writes the bundle as that version into the empty or missing folder `output`; returns agreement before, after.

    Weights and heads stay byte for byte; percentiles and threshold are the old value's until they are renewed. Raises
    ExporterError where the bundle is another scorer's or the folder is in use.
    """
    if bundle.manifest.kind != KIND:
        raise ExporterError(f"{bundle.manifest.reference} is not a bundle of the scorer {KIND}")
    copied = start_version(bundle, version, output)
    old = copied.manifest
    before = _measure(_load(copied), folder)
    options = QualityOptions.model_validate(old.options)
    value = options.value.model_copy(update={"repeats": dict(taken)})
    changed = QualityOptions.model_validate({**options.model_dump(), "value": value.model_dump()})
    manifest = old.model_copy(
        update={
            "version": version,
            "options": changed.model_dump(mode="json"),
            "threshold": None,
            "agreement": {**_without_values(old.agreement), BEFORE: {"of": old.reference, **before}},
        }
    )
    finished = write_self_test(copied, manifest, _forget_repeats(bundle.self_test()))
    after = _measure(_load(finished), folder)
    agreement: dict[str, JsonValue] = {**manifest.agreement, BY_GRAPH: {choose_variant(finished): {**after}}}
    return write_bundle(output, manifest.model_copy(update={"agreement": agreement})), before, after


def _load(bundle: Bundle) -> LoadedScorer:
    return load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())


def _measure(loaded: LoadedScorer, folder: Path) -> Figures:
    """The value's agreement with people by set: Spearman, or the AUC where they answered yes or no."""
    found: Figures = {}
    for name, turns in read_development_sets(folder).items():
        ratings = [turn.rating for turn in turns]
        measure = compute_auc if set(ratings) <= {0.0, 1.0} else compute_spearman
        found[name] = round(measure(score_rated(loaded, turns), ratings), 4)
    return found


def _without_values(agreement: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The measured agreement, without the figures of the old value."""
    kept: dict[str, JsonValue] = {name: found for name, found in agreement.items() if name != BY_GRAPH}
    report = kept.get(REPORT)
    if isinstance(report, dict) and isinstance(ratings := report.get("ratings"), dict):
        heads: dict[str, JsonValue] = {
            name: {column: figure for column, figure in found.items() if column != "value"}
            for name, found in ratings.items()
            if isinstance(found, dict)
        }
        kept[REPORT] = {**report, "ratings": heads}
    return kept


def _forget_repeats(test: SelfTest) -> SelfTest:
    """The turns without graphs' outputs, and without the checkpoint's value where a repeat changed it."""
    turns = []
    for each in test.turns:
        asked = read_turn(each)
        value = None if find_repeats(asked.context, asked.response) else each.value
        turns.append(each.model_copy(update={"value": value, "graphs": {}}))
    return SelfTest(turns=turns)
