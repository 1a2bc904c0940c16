"""A small graph with the axes that ours have: rows of tokens, and pairs that point at rows. No weights."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = ["rows", "tokens"]


def save_row_graph(path: Path) -> Path:
    """`sums` [rows]: of the ids that the mask keeps. `pair_sums` [pairs]: those of two rows together."""
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ROWS),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ROWS),
        helper.make_tensor_value_info("first", TensorProto.INT64, ["pairs"]),
        helper.make_tensor_value_info("second", TensorProto.INT64, ["pairs"]),
    ]
    outputs = [
        helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("pair_sums", TensorProto.FLOAT, ["pairs"]),
    ]
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["real", "last"], ["sums"], keepdims=0),
        helper.make_node("Gather", ["sums", "first"], ["a"]),
        helper.make_node("Gather", ["sums", "second"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["pair_sums"]),
    ]
    last = numpy_helper.from_array(np.array([1]), "last")
    graph = helper.make_graph(nodes, "rows", inputs, outputs, [last])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def draw_feeds(rows: int, tokens: int, pairs: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of the row graph; padding is part of the ids, so that a forgotten mask shows."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, tokens + 1, rows)
    return {
        "input_ids": generator.integers(1, 1000, (rows, tokens)),
        "attention_mask": (np.arange(tokens)[None] < lengths[:, None]).astype(np.int64),
        "first": generator.integers(0, rows, pairs),
        "second": generator.integers(0, rows, pairs),
    }
