"""FED's model, its export for CPUs and GPUs, and the language model that it may be trained on."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.corpora import turns_of
from support.exporter_data import build_sentence, save_tiny_dialogpt, write_rows
from support.files import invoke
from support.graphs import run_graph
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.fed.batch import Branch, BranchedTrunk, FedBatch, build_tree
from turnscore_exporters.bundles.writer import GRAPH_FILES
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import CheckpointError, ExporterError, GraphExportError, ParityError
from turnscore_exporters.fed import model as fed_graphs
from turnscore_exporters.fed.bundle import measure_losses, read_qualities, run_fed_export
from turnscore_exporters.fed.language_model import read_texts, run_language_model_training
from turnscore_exporters.fed.model import FedModel, build_probe, export_graph, load_checkpoint
from turnscore_exporters.graphs.fp16 import emulate_fp16
from turnscore_exporters.options import FedExportOptions, LanguageModelOptions
from turnscore_models.bundle import read_bundle

TRUNK = (0, 40, 41, 42, 0, 50, 51, 0, 60, 61, 62, 63, 0)
FOLLOW_UPS = [[70, 71, 72], [70, 73, 74, 75], [80, 81]]


@pytest.mark.parametrize("sharpness", [1, 12])
def test_unseen_tokens_change_no_loss_however_high_they_score(tmp_path, sharpness):
    checkpoint = load_checkpoint(str(save_tiny_dialogpt(tmp_path, positions=64)))
    with torch.no_grad():
        for block in checkpoint.model.transformer.h:
            block.attn.c_attn.weight[:, :64] *= sharpness  # the queries
    tree = build_tree(FOLLOW_UPS)
    starts = [5, 8, 13]
    batch = FedBatch([BranchedTrunk(TRUNK, tuple(Branch(each, (), tree) for each in starts), False)], pad_id=0)
    with torch.inference_mode():
        losses = FedModel(checkpoint.model)(**{name: torch.from_numpy(each) for name, each in batch.feeds().items()})
    for start, found in zip(starts, batch.read_losses(losses.numpy()), strict=True):
        expected = [measure_losses(checkpoint, TRUNK[:start], each)["response_only"] for each in FOLLOW_UPS]
        assert tree.response_losses(found.tree) == pytest.approx(expected, abs=1e-4)


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


ROUNDING = 1e-4


@pytest.fixture(scope="module")
def graphs(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    paths = {name: folder / f"{name}.onnx" for name in ("plain", "fused", "half", "emulated")}
    export_graph(checkpoint.model, paths["plain"])
    export_graph(checkpoint.model, paths["fused"], is_fused=True)
    export_graph(checkpoint.model, paths["half"], torch.float16, is_fused=True)
    emulate_fp16(paths["half"], paths["emulated"])
    return paths


def uneven_batch(vocabulary):
    """A dialogue, candidates with stems, and a lone turn: trunks and branches of unlike widths, padding in each."""
    generator = np.random.default_rng(0)

    def draw(count):
        return tuple(int(each) for each in generator.integers(0, vocabulary, count))

    small, large = build_tree([draw(3), draw(4)]), build_tree([draw(6), draw(2), draw(7), draw(5)])
    dialogue = BranchedTrunk(draw(37), (Branch(11, (), large), Branch(37, (), large)), with_context=True)
    candidates = BranchedTrunk(draw(9), (Branch(9, draw(5), small), Branch(9, draw(12), small)), with_context=True)
    alone = BranchedTrunk(draw(2), (Branch(2, (), small),), with_context=False)
    return FedBatch([dialogue, candidates, alone], pad_id=0).feeds()


def test_fused_attention_gives_what_plain_operators_give(graphs, checkpoint):
    feeds = uneven_batch(checkpoint.model.config.vocab_size)
    assert run_graph(graphs["fused"], feeds)[0] == pytest.approx(run_graph(graphs["plain"], feeds)[0], abs=ROUNDING)


@pytest.mark.gpu
def test_a_gpu_gives_what_the_emulation_gives(cuda, graphs, checkpoint):
    feeds = uneven_batch(checkpoint.model.config.vocab_size)
    found = CudaBackend(graphs["half"], cuda, CudaOptions()).run(feeds)["loss"]
    assert found == pytest.approx(run_graph(graphs["emulated"], feeds)[0], abs=0.05)


def test_a_graph_whose_attention_was_not_fused_is_refused(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(fed_graphs, "FedModel", lambda model, dtype, is_fused: FedModel(model, dtype))
    with pytest.raises(GraphExportError, match="has 0 fused attentions, expected 4"):
        export_graph(checkpoint.model, tmp_path / "plain.onnx", is_fused=True)


def test_the_command_writes_an_fp16_bundle_that_kept_the_order_of_turns(checkpoint, tmp_path):
    generator = np.random.default_rng(0)
    plain = sorted(word for word in checkpoint.tokenizer.get_vocab() if word.isascii() and word.isalpha())

    def say(speaker):
        return {"speaker": speaker, "text": " ".join(generator.choice(plain, 6))}

    rows = [{"turns": [say(each) for each in ("user", "system") * 3]} for _ in range(40)]
    dialogues = write_rows(tmp_path / "dialogues.jsonl.gz", rows)
    qualities = tmp_path / "qualities.json"
    known = {"clear": {"positive": ["I see!"], "negative": ["What do you mean?", "That makes no sense!"]}}
    qualities.write_text(json.dumps({"qualities": known}), encoding="utf-8")
    words = f"fed --checkpoint {checkpoint.name} --graph cuda-fp16 --qualities {qualities} --dialogues {dialogues}"
    invoke(app, f"{words} --output {tmp_path / 'bundle'} --turns 100".split())
    [(variant, spec)] = read_bundle(tmp_path / "bundle").manifest.graphs.items()
    assert variant == "cuda-fp16"
    assert 0 < spec.parity_measured["max_abs"] <= 0.01
    assert spec.parity_measured["spearman"] >= 0.999


SIZE = {"vocabulary": 320, "positions": 64, "width": 16, "layers": 1, "heads": 2}


@pytest.fixture
def data(tmp_path):
    generator = random.Random(0)
    said = [[build_sentence(generator, 6) for _ in range(5)] for _ in range(400)]
    rows = [{"source": ("sgd", "chat")[number % 2], "turns": each} for number, each in enumerate(said)]
    write_rows(tmp_path / "data" / "dialogue_text.jsonl.gz", rows)
    return tmp_path / "data"


def test_held_out_dialogues_are_not_trained_on(data):
    texts = read_texts(data)
    assert texts.held_out
    assert not set(texts.held_out) & set(texts.train)


def test_another_vocabulary_never_gets_the_tokenizer_that_lies_in_the_folder(data, tmp_path):
    job = LanguageModelOptions(data=data, output=tmp_path / "lm", **SIZE, steps=1)
    smaller = replace(job, vocabulary=300)
    run_language_model_training(job)
    before = (job.output / "tokenizer.json").read_bytes()
    with pytest.raises(CheckpointError, match="belongs to another run"):
        run_language_model_training(smaller)
    assert (job.output / "tokenizer.json").read_bytes() == before
    (job.output / "state.pt").unlink()
    run_language_model_training(smaller)
    assert load_checkpoint(str(job.output)).tokenizer.get_vocab_size() == 300
