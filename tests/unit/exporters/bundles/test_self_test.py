"""The self-test that exports write: own outputs of every graph, tolerances that a graph of one answer cannot meet."""

import pytest
from support.files import invoke
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import RawScore
from turnscore_exporters.bundles import self_test
from turnscore_exporters.bundles.self_test import SELF_TEST_TEXTS, record_outputs
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import ExporterError
from turnscore_models.bundle import read_bundle, starter_bundles

[ENGAGEMENT] = [folder for folder in starter_bundles() if folder.name == "engagement"]


def test_every_starter_bundle_has_todays_turns_and_outputs():
    for folder in starter_bundles():
        bundle = read_bundle(folder)
        test = bundle.self_test()
        texts = [(*(text for _, text in turn.context), turn.response) for turn in test.turns]
        assert tuple(texts) == SELF_TEST_TEXTS[bundle.manifest.kind]
        assert test.tolerances.keys() == bundle.manifest.graphs.keys()


def test_renewing_keeps_every_file_but_the_self_test_and_the_checkpoints_values(tmp_path):
    old = read_bundle(ENGAGEMENT)
    invoke(app, ["self-test", "--bundle", ENGAGEMENT, "--version", "9.0.0", "--output", tmp_path / "new"])
    new = read_bundle(tmp_path / "new")
    assert new.manifest.reference == "engagement:9.0.0"
    assert {name for name, checksum in new.manifest.files.items() if old.manifest.files[name] != checksum} <= {
        "self_test.json"
    }
    assert [turn.value for turn in new.self_test().turns] == [turn.value for turn in old.self_test().turns]
    load_scorer(new, "cpu-int8")


@pytest.mark.parametrize(
    ("version", "filled", "message"), [("9", False, "is not a version"), ("9.0.0", True, "is not empty")]
)
def test_renewing_refuses_by_name(tmp_path, version, filled, message):
    if filled:
        (tmp_path / "mine.txt").write_text("keep")
    refused = invoke(app, ["self-test", "--bundle", ENGAGEMENT, "--version", version, "--output", tmp_path], 1)
    assert message in refused.output
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"] * filled


def test_a_graph_that_scores_every_turn_alike_is_not_exported(monkeypatch):
    bundle = read_bundle(ENGAGEMENT)
    alike = [RawScore(0.5)] * len(bundle.self_test().turns)
    monkeypatch.setattr(self_test, "score_in_one_batch", lambda *_: alike)
    with pytest.raises(ExporterError, match=r"scores every self-test turn 0\.5"):
        record_outputs(bundle, ["cpu-int8"])
