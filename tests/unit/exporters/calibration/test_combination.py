"""The percentiles of a combination, of starter bundles on a few turns."""

import json

import pytest
from turnscore_exporters.data.pairs import ReferenceTurns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.rebuild_bundle import parse_weights, write_combination_percentiles
from turnscore_models.bundle import read_bundle, starter_bundles

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
