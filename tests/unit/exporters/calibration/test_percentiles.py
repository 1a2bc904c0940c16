"""Percentiles measured again over the population's turns, as served, and those of a combination."""

import json

import numpy as np
import pytest
from support.bundles import HEADS_FILE, make_quality_bundle
from support.exporter_data import export_tiny_fed, save_tiny_dialogpt
from turnscore_assessment.data.dialogues import STATED, LabelledTurn, Population
from turnscore_core.loaded_scorer import choose_variant, load_scorer, score_in_one_batch
from turnscore_core.scorers.quality import HEADS
from turnscore_exporters.data.pairs import ReferenceTurns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.rebuild_bundle import parse_weights, renew_percentiles, write_combination_percentiles
from turnscore_models.bundle import read_bundle, starter_bundles

STARTERS = {folder.name: folder for folder in starter_bundles()}
WORDS = ("good", "bad", "fine", "a", "tell me more", "why", "ok", "i do not know", "ugly", "b c d")


def build_population(count):
    said = [(f"what about {WORDS[n % 7]} ?", f"{WORDS[n % 10]} {n % 17}") for n in range(count)]
    turns = [LabelledTurn(set_name="made up", context=(("user", text),), response=reply) for text, reply in said]
    return Population(turns, frozenset())


def score(loaded, population):
    return score_in_one_batch(loaded.scorer, [turn.to_score() for turn in population.turns])


def changed_files(old, new):
    assert old.manifest.files.keys() == new.manifest.files.keys()
    return {name for name, checksum in new.manifest.files.items() if old.manifest.files[name] != checksum}


def test_the_curve_is_that_of_the_values_that_the_graph_serves(tmp_path):
    old, population = read_bundle(STARTERS["sentiment_stop"]), build_population(150)
    new = renew_percentiles(old, population, "9.0.0", tmp_path / "new")
    loaded = load_scorer(new, choose_variant(new))
    scores = score(loaded, population)
    wanted = np.percentile([each.value for each in scores], range(101))
    assert new.calibration().percentiles == pytest.approx(wanted, abs=1e-5)
    assert (new.calibration().turns, new.calibration().source) == (150, f"{STATED}; values of the graph cpu-int8")
    places = [loaded.percentile(each) for each in scores]
    assert np.mean([place for place in places if place is not None]) == pytest.approx(50, abs=3)
    assert changed_files(old, new) == {"calibration.json"}
    assert (new.manifest.version, new.manifest.name) == ("9.0.0", "sentiment_stop")


def test_feds_percentiles_of_every_quality_are_taken_too(tmp_path):
    names = ("interesting", "fluent")
    checkpoint = save_tiny_dialogpt(tmp_path / "dialogpt", positions=128)
    old = export_tiny_fed(checkpoint, tmp_path / "old", ("fp32",), names)
    population = build_population(100)
    new = renew_percentiles(old, population, "9.0.0", tmp_path / "new")
    assert changed_files(old, new) == {"calibration.json", "reference.npz"}
    scores = score(load_scorer(new, choose_variant(new)), population)
    for name in names:
        assert np.mean([each.details[f"{name}_percentile"] for each in scores]) == pytest.approx(50, abs=3)
    assert np.mean([each.percentile for each in scores if each.percentile is not None]) == pytest.approx(50, abs=3)
    with np.load(new.folder / "reference.npz") as arrays:
        assert {loss: arrays[loss].shape[0] for loss in arrays.files} == {"response_only": 100, "whole_sequence": 100}


def test_the_heads_of_quality_have_their_curves_renewed(tmp_path):
    old, population = make_quality_bundle(tmp_path / "old"), build_population(120)
    new = renew_percentiles(old, population, "9.0.0", tmp_path / "new")
    assert changed_files(old, new) == {"calibration.json", HEADS_FILE}
    scores = score(load_scorer(new, "fp32"), population)
    for name in HEADS:
        assert np.mean([each.details[f"{name}_percentile"] for each in scores]) == pytest.approx(50, abs=3)


@pytest.mark.parametrize(
    ("turns", "version", "message"),
    [(99, "9.0.0", "99 turns; percentiles need"), (100, "9", "is not a version"), (100, "9.0.0", "is not empty")],
)
def test_renewing_refuses_by_name(turns, version, message, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ExporterError, match=message):
        renew_percentiles(read_bundle(STARTERS["engagement"]), build_population(turns), version, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_the_starters_percentiles_come_from_the_population():
    for folder in starter_bundles():
        assert read_bundle(folder).calibration().source.startswith(STATED), folder.name


TURNS = ReferenceTurns([("hi", f"we saw {n} boats on the lake") for n in range(12)], "made up")
BUNDLES = [f"{each}/" for each in starter_bundles() if each.name in ("engagement", "sentiment_stop")]


def test_percentiles_are_those_of_the_weighted_sum(tmp_path):
    one = write_combination_percentiles({"engagement": 1.0}, BUNDLES, TURNS, tmp_path / "one.json").percentiles
    parts = {"engagement": 2.0, "sentiment_stop.goes_on": 0.0}
    both = write_combination_percentiles(parts, BUNDLES, TURNS, tmp_path / "both.json").percentiles
    assert both == pytest.approx([2 * each for each in one], abs=2e-6)
    written = json.loads((tmp_path / "both.json").read_text())
    assert (written["turns"], written["weights"]) == (12, parts)
    references = {each.manifest.kind: each.manifest.reference for each in map(read_bundle, starter_bundles())}
    assert written["models"] == {name: references[name] for name in ("engagement", "sentiment_stop")}


def test_weights_and_parts_that_are_none_are_refused(tmp_path):
    for given, said in ((["engagement"], "expected a part and a number"), ([], "at least one --weight")):
        with pytest.raises(ExporterError, match=said):
            parse_weights(given)
    for weights, said in (({"fed": 1.0}, "which no --bundle is"), ({"engagement.x": 1.0}, "the parts of engagement")):
        with pytest.raises(ExporterError, match=said):
            write_combination_percentiles(weights, BUNDLES[:1], TURNS, tmp_path / "none.json")
    assert parse_weights(["engagement=0.5", "usr.mlm=-1"]) == {"engagement": 0.5, "usr.mlm": -1.0}
