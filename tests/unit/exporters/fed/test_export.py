import json
import re

import pytest
import torch
from support.corpora import turns_of
from support.exporter_data import save_tiny_dialogpt, write_rows
from support.files import invoke
from support.graphs import run_graph
from turnscore_core.loaded_scorer import load_scorer
from turnscore_exporters.bundles.writer import GRAPH_FILES
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import ExporterError, ParityError
from turnscore_exporters.fed.bundle import read_qualities, run_fed_export
from turnscore_exporters.fed.model import build_probe, export_graph, load_checkpoint
from turnscore_exporters.options import FedExportOptions
from turnscore_models.bundle import read_bundle


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return load_checkpoint(str(save_tiny_dialogpt(tmp_path_factory.mktemp("dialogpt"), positions=128)))


def export(checkpoint, **changes):
    """What the export says."""
    return list(run_fed_export(FedExportOptions(checkpoint=checkpoint.name, version="1.0.0", turns=100, **changes)))


def write_dialogues(path):
    return write_rows(path, [{"turns": turns_of(*(f"turn {turn} of {n}" for turn in range(6)))} for n in range(50)])


def test_a_vocabulary_in_slices_gives_the_same_losses(checkpoint, tmp_path, monkeypatch):
    feeds = build_probe(checkpoint.model.config.vocab_size)
    export_graph(checkpoint.model, tmp_path / "whole.onnx")
    monkeypatch.setattr("turnscore_exporters.fed.model.VOCABULARY_SLICE", 100)
    export_graph(checkpoint.model, tmp_path / "sliced.onnx")
    [whole], [sliced] = (run_graph(tmp_path / f"{name}.onnx", feeds) for name in ("whole", "sliced"))
    assert sliced == pytest.approx(whole, abs=1e-4)


def test_the_command_writes_a_bundle_that_the_service_loads(checkpoint, tmp_path):
    output = tmp_path / "bundle"
    reference = write_dialogues(tmp_path / "dialogues.jsonl.gz")
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"qualities": {"funny": {"positive": ["haha"], "negative": ["I don't get it."]}}}))
    arguments = ["--output", output, "--dialogues", reference, "--turns", 100, "--threads", 1]
    arguments += ["--graph", "cpu-int8", "--loss", "whole_sequence", "--join", "spaced", "--qualities", own]
    invoke(app, ["fed", "--checkpoint", checkpoint.name, "--version", "2.0.0", *arguments])
    bundle = read_bundle(output)
    assert list(bundle.manifest.graphs) == ["cpu-int8"]
    assert not (output / GRAPH_FILES["fp32"]).exists()
    assert bundle.manifest.options["default_qualities"] == ["funny"]
    assert bundle.calibration().turns == 100
    assert load_scorer(bundle, "cpu-int8", threads=1).scorer.KIND == "fed"


def test_a_graph_that_disagrees_with_the_published_way_is_refused(checkpoint, tmp_path, monkeypatch):
    def export_other_weights(model, path, *rest):
        changed = load_checkpoint(checkpoint.name).model
        with torch.no_grad():
            changed.transformer.wpe.weight[:, :8] += 1.0
        export_graph(changed, path)

    monkeypatch.setattr("turnscore_exporters.fed.bundle.export_graph", export_other_weights)
    dialogues = write_dialogues(tmp_path / "d.jsonl.gz")
    with pytest.raises(ParityError, match="differs from the published way"):
        export(checkpoint, output=tmp_path / "b", dialogues=[dialogues], graph=["fp32"])
    assert not (tmp_path / "b").exists()


def test_wrong_choices_are_named(checkpoint):
    for changes, message in (({}, "--output and --dialogues"), ({"verify": True, "graph": ["fp8"]}, "--graph")):
        with pytest.raises(ExporterError, match=message):
            export(checkpoint, **changes)


def test_published_qualities_are_feds_eighteen_and_the_assessment_papers_seven():
    known = read_qualities()
    assert len(known.sets["fed"]) == 18
    assert len(known.sets["human-assessment"]) == 7
    asked = [known.qualities[name] for name in known.default]
    assert len({text for each in asked for text in (*each.positive, *each.negative)}) == 63
    assert all(name in known.qualities for names in known.sets.values() for name in names)


def test_a_window_without_room_for_the_follow_ups_is_refused_before_any_graph_is_made(tmp_path, monkeypatch):
    monkeypatch.delattr("turnscore_exporters.fed.bundle.export_graph")
    folder = save_tiny_dialogpt(tmp_path, positions=64)
    result = invoke(app, ["fed", "--checkpoint", folder, "--verify"], 1)
    assert re.search(r"its 64 positions are too few: a follow-up of \d+ tokens leaves no room for a", result.output)
