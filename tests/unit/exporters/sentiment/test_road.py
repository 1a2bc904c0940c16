"""A tiny random BERT walks the whole road: train, export, load and score as the service does."""

import json

import pytest
from support.exporter_data import write_sentiment_data
from support.files import invoke
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.commands import export as export_app
from turnscore_exporters.commands import train as train_app
from turnscore_models.bundle import read_bundle
from turnscore_wire import Turn


@pytest.fixture(scope="module")
def sentiment_data(tmp_path_factory):
    return write_sentiment_data(tmp_path_factory.mktemp("sentiment_data"))


@pytest.fixture(scope="module")
def checkpoint(tiny_bert, sentiment_data, tmp_path_factory):
    output = tmp_path_factory.mktemp("checkpoint")
    options = ["--data", sentiment_data, "--output", output, "--encoder", tiny_bert, "--token-limit", 48, "--steps", 4]
    invoke(train_app, ["sentiment-stop", *options])
    return output


def export(checkpoint, data, output, *options):
    own = ["--checkpoint", checkpoint, "--data", data, "--output", output, "--int8-tolerance", 0.5]
    invoke(export_app, ["sentiment-stop", *own, "--version", "0.0.1", "--turns", 200, *options])
    return read_bundle(output)


def test_training_reports_labels_and_agreement(checkpoint):
    report = json.loads((checkpoint / "report.json").read_text(encoding="utf-8"))
    assert report["labels"]["dstc9_interactive"]["stops"] > 0
    assert report["labels"]["human_assessment"]["unknown_end"] == report["labels"]["human_assessment"]["turns"]
    assert set(report["development"]) == {"value", "sentiment", "goes_on", "value, IRIS"}


def test_exported_bundle_scores_in_the_service(checkpoint, sentiment_data, tmp_path):
    graphs = ["--graph", "cpu-int8", "--graph", "cuda-fp16"]
    bundle = export(checkpoint, sentiment_data, tmp_path / "bundle", *graphs)
    assert set(bundle.manifest.graphs) == {"cpu-int8", "cuda-fp16"}
    assert not (tmp_path / "bundle" / "graphs" / "fp32.onnx").exists()
    for variant, spec in bundle.manifest.graphs.items():
        assert spec.parity_measured["turns"] == 200
        assert spec.parity_measured["max_abs"] <= spec.parity_tolerance
        scorer = load_scorer(bundle, variant, threads=1).scorer
        [score] = scorer.score(scorer.encode([TurnToScore([Turn(speaker="user", text="hi")], "hello you")]))
        assert 0 < score.details["goes_on"] < 1
        assert score.value == pytest.approx(score.details["sentiment"] + score.details["goes_on"])


def test_the_paper_s_recipe_is_trained_exported_and_described(tiny_bert, sentiment_data, tmp_path):
    options = ["--data", sentiment_data, "--output", tmp_path / "paper", "--encoder", tiny_bert]
    options += ["--recipe", "paper", "--token-limit", 48, "--epochs", 1, "--steps", 4]
    invoke(train_app, ["sentiment-stop", *options, "--target", "two"], 1)
    invoke(train_app, ["sentiment-stop", *options])
    described = json.loads((tmp_path / "paper" / "training.json").read_text(encoding="utf-8"))
    assert (described["target"], described["pooling"]) == ("sum", "pooled")
    bundle = export(tmp_path / "paper", sentiment_data, tmp_path / "bundle")
    assert set(bundle.manifest.graphs) == {"fp32", "cpu-int8"}
