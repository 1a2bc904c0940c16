"""FED's graph for GPUs: fused attention gives what plain operators give, and is really there."""

import json

import numpy as np
import pytest
import torch
from support.exporter_data import save_tiny_dialogpt, write_rows
from support.files import invoke
from support.graphs import run_graph
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.fed import model as fed_graphs
from turnscore_exporters.fed.model import FedModel, export_graph, load_checkpoint
from turnscore_exporters.graphs.fp16 import emulate_fp16
from turnscore_models.bundle import read_bundle

ROUNDING = 1e-4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return load_checkpoint(str(save_tiny_dialogpt(tmp_path_factory.mktemp("dialogpt"), positions=128)))


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
    dialogue = Conversation(draw(37), (Branch(11, (), large), Branch(37, (), large)), with_context=True)
    candidates = Conversation(draw(9), (Branch(9, draw(5), small), Branch(9, draw(12), small)), with_context=True)
    alone = Conversation(draw(2), (Branch(2, (), small),), with_context=False)
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
