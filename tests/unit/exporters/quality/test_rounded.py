"""Training with int8 rounding in it: torch rounds as the graph does, and rounded weights answer as the first did."""

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from transformers.activations import ACT2FN
from turnscore_exporters.errors import CheckpointError, GraphExportError
from turnscore_exporters.graphs.export import export_fp32
from turnscore_exporters.graphs.quantization import quantize_int8
from turnscore_exporters.quality.bundle import CONTRACT
from turnscore_exporters.quality.model import QualityModel
from turnscore_exporters.quality.recovery import put_weights
from turnscore_exporters.quality.rounded import lessons
from turnscore_exporters.quality.rounded.layers import find_smoothing, put_rounding_in, take_rounding_out
from turnscore_exporters.quality.rounded.lessons import RoundingRecipe, learn_rounding
from turnscore_exporters.training.checkpoint_files import read_smoothing, write_smoothing
from turnscore_service.inference.onnx_backend import OnnxBackend

from .test_teacher import PEOPLE, TURNS, answers, fresh

RECIPE = RoundingRecipe(batch=8, epochs=8, learning_rate=2e-4)
SHORT = RoundingRecipe(batch=8, epochs=2)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of five bits: int8 hardly changes what a model of this size says."""
    monkeypatch.setattr("turnscore_exporters.quality.rounded.layers.INT8_LIMIT", 7)


def varied(tiny_bert: Path, by: float = 0.02) -> QualityModel:
    """A model no two of whose layer norms are alike: equal ones are one tensor of the graph."""
    model, _ = fresh(tiny_bert)
    with torch.no_grad():
        for weight in model.parameters():
            weight += by * torch.randn_like(weight)
    return model


def round_once(model: QualityModel) -> QualityModel:
    rounded = copy.deepcopy(model)
    put_rounding_in(rounded.encoder, find_smoothing(rounded.encoder))
    take_rounding_out(rounded.encoder)
    return rounded


def whole_numbers(path: Path) -> list[np.ndarray]:
    graph = onnx.load(path).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return [constants[node.input[1]] for node in graph.node if node.op_type == "MatMulIntegerToFloat"]


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_a_layer_in_torch_computes_what_the_graph_does(tiny_bert: Path, tmp_path: Path, activation: str) -> None:
    model = varied(tiny_bert)
    model.encoder.config.hidden_act = activation
    for layer in model.encoder.encoder.layer:
        layer.intermediate.intermediate_act_fn = ACT2FN[activation]
    export_fp32(model, CONTRACT, tmp_path / "fp32.onnx")
    quantize_int8(tmp_path / "fp32.onnx", tmp_path / "int8.onnx")
    ids = np.random.default_rng(0).integers(1, 40, (6, 12))
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "response_row": np.array([0, 1, 2]),
        "context_rows": np.array([[3, 4, -1], [4, -1, -1], [5, 3, 1]]),
    }
    given = [torch.from_numpy(value) for value in feeds.values()]
    with torch.inference_mode():
        plain = torch.stack(model(*given))
        smoothing = put_weights(model, tmp_path / "int8.onnx")  # with the embeddings as the graph has them
        put_rounding_in(model.encoder, smoothing)
        rounded = torch.stack(model(*given))
    served = OnnxBackend(tmp_path / "int8.onnx", threads=1).run(feeds)
    found = torch.stack([torch.from_numpy(served[name]) for name in CONTRACT.outputs])
    assert (rounded - found).abs().max() < 0.01 * (plain - found).abs().max()


def test_rounded_weights_are_rounded_to_themselves(tiny_bert: Path, tmp_path: Path) -> None:
    model = varied(tiny_bert)
    smoothing = find_smoothing(model.encoder)
    put_rounding_in(model.encoder, smoothing)
    take_rounding_out(model.encoder)
    once = copy.deepcopy(model.state_dict())
    put_rounding_in(model.encoder, smoothing)
    take_rounding_out(model.encoder)
    for name, weight in model.state_dict().items():
        assert torch.allclose(weight, once[name], rtol=1e-5, atol=0), name
    export_fp32(model, CONTRACT, tmp_path / "fp32.onnx")
    quantize_int8(tmp_path / "fp32.onnx", tmp_path / "int8.onnx", smoothing=smoothing)
    recovered, _ = fresh(tiny_bert)
    again = put_weights(recovered, tmp_path / "int8.onnx")
    np.testing.assert_allclose(again, smoothing, rtol=1e-6)
    export_fp32(recovered, CONTRACT, tmp_path / "fp32.onnx")
    quantize_int8(tmp_path / "fp32.onnx", tmp_path / "again.onnx", smoothing=again)
    for before, after in zip(
        whole_numbers(tmp_path / "int8.onnx"), whole_numbers(tmp_path / "again.onnx"), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_after_the_training_the_rounded_weights_answer_more_like_the_first_ones(tiny_bert: Path, coarse: None) -> None:
    model, (_, encoder) = varied(tiny_bert, by=0.05), fresh(tiny_bert)
    wanted, heads = answers(model, encoder)
    found, found_heads = answers(round_once(model), encoder)
    before = [float((found - wanted).abs().mean()), float((found_heads - heads).abs().mean())]
    embeddings = model.encoder.embeddings.word_embeddings.weight.clone()
    learn_rounding(model, encoder, TURNS, PEOPLE, RECIPE)
    found, found_heads = answers(model, encoder)
    assert float((found - wanted).abs().mean()) < 0.6 * before[0]
    assert float((found_heads - heads).abs().mean()) < 0.6 * before[1]
    assert torch.equal(embeddings, model.encoder.embeddings.word_embeddings.weight)
    assert all(weight.requires_grad for weight in model.parameters())


def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, encoder = fresh(tiny_bert)
    learn_rounding(whole, encoder, TURNS, PEOPLE, SHORT)
    monkeypatch.setattr(lessons, "SAVE_EVERY", 3)
    torn, _ = fresh(tiny_bert)
    compute, steps = lessons.compute_rounding_loss, iter(range(8))

    def stop_at_the_ninth(*given: object) -> torch.Tensor:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return compute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(lessons, "compute_rounding_loss", stop_at_the_ninth)
    with pytest.raises(KeyboardInterrupt):
        learn_rounding(torn, encoder, TURNS, PEOPLE, SHORT, tmp_path / "state.pt")
    monkeypatch.setattr(lessons, "compute_rounding_loss", compute)
    again, _ = fresh(tiny_bert)
    learn_rounding(again, encoder, TURNS, PEOPLE, SHORT, tmp_path / "state.pt")
    for left, right in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


def test_factors_of_another_graph_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    model, _ = fresh(tiny_bert)
    export_fp32(model, CONTRACT, tmp_path / "fp32.onnx")
    smoothing = find_smoothing(model.encoder)
    with pytest.raises(GraphExportError, match="smooths inputs of"):
        quantize_int8(tmp_path / "fp32.onnx", tmp_path / "int8.onnx", smoothing=smoothing[1:])


def test_factors_lie_beside_the_weights_they_belong_to(tmp_path: Path) -> None:
    factors = np.ones((2, 4), np.float32)
    write_smoothing(tmp_path, factors)
    np.testing.assert_array_equal(read_smoothing(tmp_path), factors)
    for content in (b"broken", b"", b"PK\x03\x04", (tmp_path / "smoothing.npy").read_bytes()[:-4]):
        (tmp_path / "smoothing.npy").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"smoothing\.npy: cannot be read"):
            read_smoothing(tmp_path)
    write_smoothing(tmp_path, None)
    assert read_smoothing(tmp_path) is None
