"""ONNX graphs made for tests, right and wrong ones."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from turnscore_core.inference.onnx_backend import int8_saturates
from turnscore_core.scorers.scorer import RawScore
from turnscore_models.bundle import encoder_digest, sha256_of, write_bundle

ROWS = ["rows", "tokens"]


def save_row_graph(path):
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


def draw_feeds(rows, tokens, pairs, seed=0):
    """Random inputs of the row graph; padding is part of the ids, so that a forgotten mask shows."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, tokens + 1, rows)
    return {
        "input_ids": generator.integers(1, 1000, (rows, tokens)),
        "attention_mask": (np.arange(tokens)[None] < lengths[:, None]).astype(np.int64),
        "first": generator.integers(0, rows, pairs),
        "second": generator.integers(0, rows, pairs),
    }


def run_graph(path, feeds, *outputs):
    """The graph's outputs, or those of these names, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", str(int(int8_saturates())))  # as the service's
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(outputs or None, feeds))


def with_graph(bundle, change, heads=""):
    """The bundle, with checksums that fit, after `change` was made to its last int8 graph, or to a set of heads."""
    manifest = bundle.manifest
    graphs = list(map(bundle.path_of, manifest.graphs["cpu-int8"].files))
    file = bundle.path_of(manifest.heads[heads].file) if heads else graphs[-1]
    model = onnx.load(file)
    change(model)
    onnx.save(model, file)
    fitting = {
        name: spec.model_copy(
            update={
                "sha256": sha256_of(bundle.path_of(spec.file)),
                "encoders": [*spec.encoders, encoder_digest(*map(sha256_of, graphs))],
            }
        )
        for name, spec in manifest.heads.items()
    }
    return write_bundle(bundle.folder, manifest.model_copy(update={"heads": fitting}))


def permute_outputs(model):
    """Every output comes in reverse along its first axis; where there are two, each has the other's name."""
    graph = model.graph
    names = [each.name for each in graph.output]
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name in names:
                node.output[place] = f"was_{name}"
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = f"was_{name}"
    ends = {"from": [-1], "to": [np.iinfo(np.int64).min], "axis": [0], "step": [-1]}
    for name, value in ends.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value), f"reverse_{name}"))
    for name, source in zip(names, names[1:] + names[:1], strict=True):
        graph.node.append(helper.make_node("Slice", [f"was_{source}", *(f"reverse_{each}" for each in ends)], [name]))


def weight_matrices(model):
    """The int8 matrices that are multiplied with; embeddings are looked up, and are none."""
    multiplied = {name for node in model.graph.node if node.op_type == "MatMulIntegerToFloat" for name in node.input}
    return [each for each in model.graph.initializer if each.name in multiplied and len(each.dims) == 2]


def corrupt_matrix(place):
    """One weight matrix, counted from the first layer, has its rows in reverse."""

    def change(model):
        tensor = weight_matrices(model)[place]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), tensor.name))

    return change


class ConstantScorer:
    """Gives every turn the same score: in value and details the middle of what the right graph gives."""

    def __init__(self, right, turns):
        self._right = right
        packs = right.encode(turns)
        scores = right.score(packs)
        details = {name: _middle([each.details[name] for each in scores]) for name in scores[0].details}
        self._score = RawScore(_middle([each.value for each in scores]), details)

    def encode(self, turns):
        return self._right.encode(turns)

    def score(self, batch):
        return [self._score for pack in batch for _ in pack.answers]


def _middle(values):
    return (min(values) + max(values)) / 2
