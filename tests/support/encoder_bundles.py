"""An encoder bundle without training: a word has its own vector, and a text's is the mean of its words'."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import read_turn, score_turns
from turnscore_core.scorers.encoder import TextEncoder
from turnscore_models import Bundle, GraphOutput, GraphSpec, Manifest, SelfTest, SelfTestTurn, TensorSpec, write_bundle

from support.quality_bundles import WORDS, curve, save_tokenizer

GRAPH = "graph.onnx"
WIDTH = 6
TURNS = (("good fine", "good fine"), ("good fine", "bad ugly"), ("a b c", "a b d"), ("a b c", "x y z w v u t"))


def save_encoder_graph(path: Path, *, output: str = "vector", seed: int = 0) -> None:
    """Good words lie close together, bad words opposite, letters anywhere; special tokens are nothing."""
    table = np.random.default_rng(seed).normal(0, 1, (4 + len(WORDS), WIDTH)).astype(np.float32)
    table[:4] = 0
    table[4:7] = table[4] + table[4:7] * 0.1
    table[7:10] = -table[4] + table[7:10] * 0.1
    tensors = {"table": table, "last": np.array([-1]), "tokens_axis": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "last"], ["weight3"]),
        helper.make_node("Mul", ["words", "weight3"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "tokens_axis"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["weight", "last"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], [output]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["rows", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def make_encoder_bundle(folder: Path, *, token_limit: int = 8) -> Bundle:
    """A bundle that loads and encodes."""
    folder.mkdir(parents=True)
    save_tokenizer(folder / "tokenizer.json")
    save_encoder_graph(folder / GRAPH)
    (folder / "calibration.json").write_text(json.dumps(curve(-1, 1)))
    turns = [SelfTestTurn(context=[("user", before)], response=response, value=0.0) for before, response in TURNS]
    (folder / "self_test.json").write_text(SelfTest(turns=turns).model_dump_json())
    backend = OnnxBackend(folder / GRAPH, threads=1)
    inputs, outputs = (
        [TensorSpec(name=each.name, dtype=each.dtype, shape=list(each.shape)) for each in tensors]
        for tensors in (backend.inputs, backend.outputs)
    )
    graph = GraphSpec(
        file=GRAPH, precision="fp32", opset=17, inputs=inputs, outputs=outputs, parity_tolerance=1e-4,
        parity_measured={},
    )  # fmt: skip
    manifest = Manifest(
        name="encoder", version="0.0.1", kind="encoder", graphs={"fp32": graph}, tokenizer="tokenizer.json",
        calibration="calibration.json", self_test="self_test.json", token_limit=token_limit, training={}, agreement={},
        licence="Apache-2.0",
    )  # fmt: skip
    bundle = write_bundle(folder, manifest)
    scores = score_turns(TextEncoder(bundle, backend), [read_turn(each) for each in turns])
    known = []
    for turn, score in zip(turns, scores, strict=True):
        own = GraphOutput(value=score.value, details=score.details)
        known.append(turn.model_copy(update={"value": score.value, "graphs": {"fp32": own}}))
    test = SelfTest(turns=known, tolerances={"fp32": 1e-4})
    (folder / "self_test.json").write_text(test.model_dump_json())
    return write_bundle(folder, manifest)
