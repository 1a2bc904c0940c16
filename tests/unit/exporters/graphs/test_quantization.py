"""The int8 graph of a tiny random BERT: independent of batch and padding, close to fp32, int8 where it claims to be."""

import shutil

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from support.exporter_data import SHAPE
from support.graphs import run_graph
from transformers import BertConfig, BertModel
from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.graphs import export
from turnscore_exporters.graphs.int8 import quantize_int8

HIDDEN, LAYERS, VOCABULARY = 64, 3, 500
CONTRACT = export.GraphContract(
    inputs={"input_ids": export.ROW_AXES, "attention_mask": export.ROW_AXES},
    outputs={"vectors": ("rows", ""), "scores": ("rows", "")},
    examples=(export.EXAMPLE_IDS, (export.EXAMPLE_IDS > 0).long()),
)
ROWS = 32
CLOSE = 0.02  # chosen: half as much again as measured (0.013)


class PooledBert(export.BertGraph):
    """Mean and maximum over real tokens, then a small head: the forms our exports have."""

    def __init__(self):
        super().__init__()
        shape = {**SHAPE, "vocab_size": VOCABULARY, "num_hidden_layers": LAYERS, "intermediate_size": 4 * HIDDEN}
        config = BertConfig(**shape, initializer_range=0.1, attn_implementation="eager")
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = torch.nn.Linear(2 * HIDDEN, 8)

    def forward(self, input_ids, attention_mask):
        tokens = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=torch.zeros_like(input_ids)
        ).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * mask).sum(1) / mask.sum(1)
        vectors = torch.cat([mean, (tokens + (mask - 1.0) * 1e4).amax(1)], dim=-1)
        return vectors, self.head(vectors)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """Paths of the graph as traced, with fused attention, of the int8 form of both, and without padding of the last."""
    folder = tmp_path_factory.mktemp("graphs")
    paths = {name: folder / f"{name}.onnx" for name in ("plain", "fused", "int8_of_plain", "int8_of_fused", "unpadded")}
    torch.manual_seed(0)
    model = PooledBert()
    export.trace_graph(model, CONTRACT, paths["plain"])
    export.export_fp32(model, CONTRACT, paths["fused"])
    quantize_int8(paths["plain"], paths["int8_of_plain"])
    quantize_int8(paths["fused"], paths["int8_of_fused"])
    shutil.copy(paths["int8_of_fused"], paths["unpadded"])
    export.skip_padding(paths["unpadded"])
    return paths


@pytest.fixture(scope="module", params=["int8_of_plain", "int8_of_fused", "unpadded"])
def int8_path(request, graphs):
    return graphs[request.param]


def batch(*rows, tokens=0):
    width = tokens or max(map(len, rows))
    input_ids = np.zeros((len(rows), width), np.int64)
    for row, ids in enumerate(rows):
        input_ids[row, : len(ids)] = ids
    return {"input_ids": input_ids, "attention_mask": (input_ids > 0).astype(np.int64)}


def random_rows():
    generator = np.random.default_rng(1)
    return [generator.integers(1, VOCABULARY, length).tolist() for length in generator.integers(3, 30, ROWS)]


def run(path, *rows, tokens=0):
    return run_graph(path, batch(*rows, tokens=tokens), "vectors")[0]


def relative_differences(found, expected):
    """Length of each row's difference over the length of the expected row."""
    return np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)


def test_row_alone_scores_as_in_a_batch(int8_path):
    rows = random_rows()[:8]
    together = run(int8_path, *rows)
    alone = np.concatenate([run(int8_path, row) for row in rows])
    assert relative_differences(alone, together).max() < 1e-6


def test_padding_does_not_reach_the_result(int8_path):
    rows = [row[:16] for row in random_rows()]
    assert relative_differences(run(int8_path, *rows, tokens=16), run(int8_path, *rows, tokens=64)).max() < 1e-6


def test_int8_stays_close_to_fp32(int8_path, graphs):
    rows = random_rows()
    assert relative_differences(run(int8_path, *rows), run(graphs["plain"], *rows)).mean() < CLOSE


def test_every_large_matrix_and_every_table_is_int8(int8_path):
    graph = onnx.load(int8_path).graph
    matrices = [tensor for tensor in graph.initializer if len(tensor.dims) == 2 and min(tensor.dims) > 1]
    fp32 = [tensor.name for tensor in matrices if tensor.data_type == TensorProto.FLOAT]
    assert fp32 == ["head.weight"]
    tables = {VOCABULARY, 64, 2}
    assert {tensor.dims[0] for tensor in matrices if tensor.name.startswith("int8/table")} == tables
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in graph.node) == 6 * LAYERS


@pytest.mark.parametrize("tokens", [29, 64])
def test_without_padding_every_score_is_the_same_to_the_last_bit(graphs, tokens):
    rows = random_rows()
    before, after = (run(graphs[name], *rows, tokens=tokens) for name in ("int8_of_fused", "unpadded"))
    assert np.array_equal(before, after)


def test_without_padding_every_matrix_is_multiplied_with_real_tokens_alone(graphs, tmp_path):
    model = onnx.load(graphs["unpadded"])
    products = [node.output[0] for node in model.graph.node if node.op_type == "MatMulIntegerToFloat"]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in products)
    onnx.save(model, tmp_path / "seen.onnx")
    rows = random_rows()
    found = run_graph(tmp_path / "seen.onnx", batch(*rows, tokens=64), *products)
    assert len(found) == 6 * LAYERS
    assert {len(each) for each in found} == {sum(map(len, rows))}


def test_only_a_berts_graph_can_do_without_padding(graphs, tmp_path):
    for name in ("plain", "fused"):
        shutil.copy(graphs[name], tmp_path / name)
        with pytest.raises(GraphExportError, match="no attention"):
            export.skip_padding(tmp_path / name)
    model = onnx.load(graphs["int8_of_fused"])
    model.graph.input[1].name = "mask"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(GraphExportError, match="attention_mask"):
        export.skip_padding(tmp_path / "other.onnx")


def test_attention_that_is_no_bert_is_refused(graphs, tmp_path):
    model = onnx.load(graphs["fused"])
    attention = next(node for node in model.graph.node if node.op_type == "Attention")
    attention.attribute.append(helper.make_attribute("unidirectional", 1))
    onnx.save(model, tmp_path / "causal.onnx")
    with pytest.raises(GraphExportError, match="not those of a BERT"):
        quantize_int8(tmp_path / "causal.onnx", tmp_path / "int8.onnx")
