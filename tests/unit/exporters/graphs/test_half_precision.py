"""The fp16 graph of a tiny random BERT: fused, fp16 where it claims to be, and measured as a GPU computes it."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.graphs import run_graph
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_exporters.bundles.writer import check_parity, turns_of
from turnscore_exporters.engagement.model import CONTRACT, EngagementModel, EngagementSettings
from turnscore_exporters.errors import GraphExportError, ParityError
from turnscore_exporters.graphs.export import export_fp32
from turnscore_exporters.graphs.fp16 import convert_fp16, emulate_fp16
from turnscore_exporters.training.encoders import load_encoder

LAYERS = 2
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


@pytest.fixture(scope="module")
def graphs(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("half")
    paths = {name: folder / f"{name}.onnx" for name in ("fp32", "fp16", "emulated")}
    encoder = load_encoder(str(tiny_bert))
    torch.manual_seed(0)
    model = EngagementModel(encoder.model, EngagementSettings(encoder="tiny", heads=2))
    export_fp32(model, CONTRACT, paths["fp32"])
    convert_fp16(paths["fp32"], paths["fp16"])
    emulate_fp16(paths["fp16"], paths["emulated"])
    return paths


def random_pairs():
    generator = np.random.default_rng(0)
    mask = (np.arange(24)[None] < generator.integers(3, 24, 16)[:, None]).astype(np.int64)
    ids = generator.integers(5, 90, (16, 24)) * mask
    rows = np.arange(16).reshape(8, 2)
    return {"input_ids": ids, "attention_mask": mask, "query_row": rows[:, 0], "reply_row": rows[:, 1]}


def save_chain(path, first, second):
    """fp32 x [n, 4] times two constant fp16 matrices."""
    matrices = [
        numpy_helper.from_array((np.eye(4) * scale).astype(np.float16), name)
        for name, scale in (("a", first), ("b", second))
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=HALF),
        helper.make_node("MatMul", ["half", "a"], ["once"]),
        helper.make_node("MatMul", ["once", "b"], ["twice"]),
        helper.make_node("Cast", ["twice"], ["y"], to=FLOAT),
    ]
    tensors = [helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", tensors[:1], tensors[1:], matrices)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_every_layer_is_fused_and_fp16_and_the_heads_stay_fp32(graphs):
    graph = onnx.load(graphs["fp16"]).graph
    found = Counter(node.op_type for node in graph.node)
    assert found["Attention"] == LAYERS
    assert found["SkipLayerNormalization"] == 2 * LAYERS
    assert found["BiasGelu"] + found["Gelu"] + found["FastGelu"] == LAYERS
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer if tensor.data_type in (HALF, FLOAT)}
    assert {kind for name, kind in kinds.items() if name.startswith("heads.")} == {FLOAT}
    large = [tensor.name for tensor in graph.initializer if np.prod(tensor.dims) > 1000]
    assert len(large) >= 4 * LAYERS
    assert all(kinds[name] == HALF for name in large if not name.startswith("heads."))


def test_fp16_is_close_to_fp32_and_rounds_more_than_its_weights(graphs):
    feeds = random_pairs()
    exact, weights_alone, all_rounded = (run_graph(graphs[name], feeds)[0] for name in ("fp32", "fp16", "emulated"))
    assert np.abs(all_rounded - exact).max() < 1e-3
    assert np.abs(all_rounded - exact).mean() > np.abs(weights_alone - exact).mean() > 0


def test_a_weight_beyond_fp16_is_refused_by_name(graphs, tmp_path):
    model = onnx.load(graphs["fp32"])
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "encoder.embeddings.LayerNorm.weight")
    weight.CopyFrom(numpy_helper.from_array(np.full(64, 1e5, np.float32), weight.name))
    onnx.save(model, tmp_path / "large.onnx")
    with pytest.raises(GraphExportError, match=r"weight encoder\.embeddings\.LayerNorm\.weight exceeds"):
        convert_fp16(tmp_path / "large.onnx", tmp_path / "half.onnx")


def test_emulation_rounds_after_every_operator(tmp_path):
    save_chain(tmp_path / "chain.onnx", 1.1, 0.9)
    emulate_fp16(tmp_path / "chain.onnx", tmp_path / "emulated.onnx")
    values = np.random.default_rng(0).random((8, 4)).astype(np.float32)
    once = (values.astype(np.float16).astype(np.float32) * np.float32(np.float16(1.1))).astype(np.float16)
    twice = (once.astype(np.float32) * np.float32(np.float16(0.9))).astype(np.float16).astype(np.float32)
    assert np.array_equal(run_graph(tmp_path / "emulated.onnx", {"x": values})[0], twice)


@pytest.mark.gpu
def test_a_gpu_gives_what_the_emulation_gives(cuda, graphs):
    found = CudaBackend(graphs["fp16"], cuda, CudaOptions()).run(random_pairs())["probability"]
    assert found == pytest.approx(run_graph(graphs["emulated"], random_pairs())[0], abs=0.005)


def test_an_fp16_graph_that_reorders_turns_is_refused_whatever_its_largest_difference():
    turns = turns_of([("hi", str(number)) for number in range(50)])
    expected = [number / 1e4 for number in range(50)]
    shuffled = [number / 1e4 for number in np.random.default_rng(0).permutation(50)]
    assert check_parity("cpu-int8", turns, shuffled, expected, 0.02).max_abs < 0.02
    with pytest.raises(ParityError, match=r"graph cuda-fp16: the order of 50 turns correlates .* at least 0\.999"):
        check_parity("cuda-fp16", turns, shuffled, expected, 0.02)
