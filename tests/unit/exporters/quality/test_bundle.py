"""A random quality checkpoint becomes a bundle that serves what the checkpoint computes."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.bundles import make_quality_bundle
from support.exporter_data import build_sentence
from support.files import invoke
from support.graphs import permute_outputs, with_graph
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.loaded_scorer import score_in_one_batch as serve
from turnscore_core.scorers.quality import HEADS, RowLayout
from turnscore_core.scorers.reaction import REACTIONS
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.bundles.self_test import self_test_turns
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.quality import bundle as bundle_module
from turnscore_exporters.quality.bundle import HEADS_TOLERANCE, score_turns
from turnscore_exporters.quality.dequantize import put_weights
from turnscore_exporters.quality.model import HeadSet, JointPart, QualityModel, QualitySettings, load_model
from turnscore_exporters.quality.value import FittedFormula, read_formula
from turnscore_exporters.training.encoders import load_encoder, save_model
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_models.manifest import MismatchedGraphError, Threshold
from turnscore_wire import Turn

LAYOUT = RowLayout(turn_tokens=8, response_tokens=40, response_end_tokens=10)
FORMULA = FittedFormula(
    weights={"overall": 0.6, "sentiment": 0.2, "relevant": 0.3}, bias=0.1,
    repeats={"repeats_user": 2.0, "repeats_itself": 1.0}, fitted_on="nothing",
)  # fmt: skip


def make_turns(count):
    """Responses after up to four turns; every seventh says an earlier turn again."""
    chance = random.Random(16)
    turns = []

    def say():
        return Turn(speaker=chance.choice(["user", "system"]), text=build_sentence(chance, chance.randint(1, 9)))

    for number in range(count):
        context = [say() for _ in range(number % 5)]
        response = build_sentence(chance, chance.randint(1, 26))
        turns.append(TurnToScore(context, context[0].text if context and number % 7 == 0 else response))
    return turns


@pytest.fixture(scope="module")
def checkpoint(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality_checkpoint")
    torch.manual_seed(0)
    encoder = load_encoder(str(tiny_bert), LAYOUT.row_tokens)
    model = QualityModel(encoder.model, QualitySettings(str(tiny_bert), LAYOUT))
    with torch.no_grad():
        model.hidden.weight.normal_(std=0.05)
        model.head.weight.normal_(std=0.1)
        for weight in model.parameters():
            if weight.ndim == 1:  # untrained ones are all alike
                weight.add_(torch.randn_like(weight) * 0.02)
    save_model(model, encoder, folder)
    (folder / "value.json").write_text(FORMULA.model_dump_json())
    (folder / "training.json").write_text(json.dumps({"command": "none", "encoder": str(tiny_bert)}))
    (folder / "threshold.json").write_text('{"value": 0.3, "source": "made up"}')
    return folder


@pytest.fixture(scope="module")
def bundle(checkpoint, tmp_path_factory):
    output = tmp_path_factory.mktemp("quality_bundle") / "bundle"
    graphs = ["--graph", "fp32", "--graph", "cpu-int8", "--graph", "cuda-fp16"]
    export(checkpoint, output, *graphs, "--int8-tolerance", 0.5, "--fp16-tolerance", 0.05)
    return read_bundle(output)


def export(checkpoint, output, *options, code=0):
    """Exports the checkpoint by the command, measured on made-up turns."""
    paths = ["--checkpoint", checkpoint, "--data", checkpoint, "--output", output]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bundle_module, "read_reference", lambda _folder, _limit: make_turns(200))
        return invoke(app, ["quality", *paths, "--version", "0.0.1", *options], code)


def test_every_graph_serves_what_the_checkpoint_computes(bundle, checkpoint):
    model, encoder = load_model(checkpoint)
    turns = make_turns(30)
    expected = score_turns(model, encoder, turns)
    assert {"repeats_user", "repeats_itself"} <= {name for each in expected.warnings for name in each}
    for variant, spec in bundle.manifest.graphs.items():
        served = [each.value for each in serve(load_scorer(bundle, variant).scorer, turns)]
        assert served == pytest.approx(expected.values(FORMULA), abs=spec.parity_tolerance + HEADS_TOLERANCE)


@pytest.mark.parametrize("variant", ["fp32", "cpu-int8"])
def test_no_bit_of_a_turns_features_depends_on_its_batch_or_on_what_is_kept(bundle, variant):
    alone, kept = (load_scorer(bundle, variant, threads=1).scorer for _ in range(2))
    store = VectorStore()
    kept.keep_vectors(store.of("one"))
    packs = alone.encode(make_turns(40))
    expected = np.concatenate([alone.compute_features([pack]) for pack in packs])
    for scorer, size in ((alone, 40), (kept, 7), (kept, 1), (kept, 40)):
        found = [scorer.compute_features(packs[start : start + size]) for start in range(0, len(packs), size)]
        assert np.array_equal(np.concatenate(found), expected), (scorer is kept, size)
    assert store.counts().hits["context"] > 100


def test_the_int8_graph_keeps_token_vectors_rounded(bundle):
    files = list(map(bundle.path_of, bundle.manifest.graphs["cpu-int8"].files))
    first, second = (OnnxBackend(file, threads=1) for file in files)
    given = {each.name: (each.dtype, each.shape[-1]) for each in first.outputs}
    width = given["lower"][1]
    assert given["upper_values"] == given["lower_values"] == ("tensor(uint8)", width)
    assert given["upper_scales"] == given["lower_scales"] == ("tensor(float)", 1)
    assert "upper" not in given
    taken = {each.name.removeprefix("context_") for each in second.inputs if each.name.startswith("context_")}
    assert {"lower_values", "lower_scales", "upper_values", "upper_scales", "pooled"} < taken
    assert not {"lower", "upper"} & taken


def test_the_manifest_says_what_was_measured_of_every_head_and_graph(bundle):
    for spec in bundle.manifest.graphs.values():
        assert spec.parity_measured["turns"] == 200
        found = [spec.parity_measured[f"{name}_max_abs"] for name in (*HEADS, *REACTIONS)]
        assert all(0 < each <= spec.parity_tolerance for each in found)
    for heads in bundle.manifest.heads.values():
        assert heads.parity_measured["turns"] == 64
        assert 0 < heads.parity_measured["max_abs"] <= HEADS_TOLERANCE
    assert bundle.manifest.training["value.json"] == "nothing"
    assert bundle.manifest.threshold == Threshold(value=0.3, source="made up")


def test_percentiles_of_value_and_heads_are_those_of_the_reference_turns(bundle):
    loaded = load_scorer(bundle, "fp32")
    scores = serve(loaded.scorer, make_turns(200))
    found = [[loaded.percentile(each) or 0.0 for each in scores]]
    found += [[each.details[f"{name}_percentile"] for each in scores] for name in HEADS]
    assert np.median(found, axis=1) == pytest.approx([50.0] * (1 + len(HEADS)), abs=2)


def test_the_self_test_holds_details_and_refuses_permuted_heads(bundle, tmp_path):
    [first, *_] = bundle.self_test().turns
    assert set(first.graphs["cpu-int8"].details) == set(HEADS)
    for part in ("", "quality"):
        copied = read_bundle(Path(shutil.copytree(bundle.folder, tmp_path / f"copy{part}")))
        with pytest.raises(MismatchedGraphError, match="when it was exported"):
            load_scorer(with_graph(copied, permute_outputs, part), "cpu-int8")


@pytest.mark.parametrize(
    ("part", "tolerance", "said"),
    [(HeadSet, 1e-3, "the heads quality: differ from the checkpoint's by 1"), (JointPart, 1e-3, "graph fp32: scores")],
)
def test_a_part_that_disagrees_stops_the_export_by_its_name(checkpoint, tmp_path, monkeypatch, part, tolerance, said):
    forward = part.forward

    def shift(self, *inputs, **named):
        outputs = forward(self, *inputs, **named)
        if not torch.jit.is_tracing():
            return outputs
        return outputs + 0.1 if part is JointPart else (outputs[0], outputs[1] + 0.01, *outputs[2:])

    monkeypatch.setattr(part, "forward", shift)
    monkeypatch.setattr(bundle_module, "HEADS_TOLERANCE", max(tolerance, bundle_module.HEADS_TOLERANCE))
    assert said in export(checkpoint, tmp_path / "bundle", "--graph", "fp32", code=1).output
    assert not (tmp_path / "bundle").exists()


def test_a_lost_checkpoint_is_recovered_from_the_int8_graph(bundle, checkpoint, tmp_path):
    invoke(app, ["dequantize", "--bundle", f"{bundle.folder}/", "--output", tmp_path / "again"])
    (model, encoder), (again, _) = load_model(checkpoint), load_model(tmp_path / "again")
    found = again.state_dict()
    for name, weight in model.state_dict().items():
        is_quantized = weight.ndim == 2 and name.startswith(("encoder.", "joint."))
        near = 1e-2 if is_quantized else 1e-3 if "hidden" in name else 1e-6  # of the largest weight: int8, fp16, fp32
        assert torch.allclose(weight, found[name], atol=float(weight.abs().max()) * near), name
    turns = make_turns(40)
    before, after = (score_turns(each, encoder, turns).heads for each in (model, again))
    assert 0 < np.abs(before - after).max() < 0.05
    again_formula = read_formula(tmp_path / "again")
    assert (again_formula.weights, again_formula.repeats) == (FORMULA.weights, FORMULA.repeats)
    assert json.loads((tmp_path / "again/training.json").read_text())["recovered_from"] == "quality:0.0.1"


def test_no_checkpoint_is_recovered_where_the_graph_lacks_a_weight(bundle, checkpoint, tmp_path):
    model, _ = load_model(checkpoint)
    with pytest.raises(CheckpointError, match="holds no encoder"):
        put_weights(model, list(map(bundle.path_of, bundle.manifest.graphs["fp32"].files)), [])
    plain = make_quality_bundle(tmp_path / "plain")
    refused = invoke(app, ["dequantize", "--bundle", f"{plain.folder}/", "--output", tmp_path / "none"], 1)
    assert "quality:0.0.1 is not a trained quality bundle" in refused.output
    assert not (tmp_path / "none").exists()


def test_a_checkpoint_of_the_shipped_bundle_takes_the_heads_for_user_turns_of_reaction(tmp_path):
    starters = {each.name: each for each in starter_bundles()}
    command = ["dequantize", "--bundle", f"{starters['quality']}/", "--output", tmp_path / "checkpoint"]
    assert "name a bundle of reaction with --reaction" in invoke(app, command, 1).output
    assert "has no heads for user turns" in invoke(app, [*command, "--reaction", f"{starters['fed']}/"], 1).output
    invoke(app, [*command, "--reaction", f"{starters['reaction']}/"])
    turns = self_test_turns("quality")
    found = score_turns(*load_model(tmp_path / "checkpoint"), turns).values(read_formula(tmp_path / "checkpoint"))
    served = [each.value for each in serve(load_scorer(read_bundle(starters["quality"]), "cpu-int8").scorer, turns)]
    assert found == pytest.approx(served, abs=0.1)
    assert np.corrcoef(found, served)[0, 1] > 0.99


def test_a_checkpoint_without_its_formula_is_refused(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "copy", ignore=shutil.ignore_patterns("value.json"))
    assert "has no value.json" in export(tmp_path / "copy", tmp_path / "bundle", code=1).output
