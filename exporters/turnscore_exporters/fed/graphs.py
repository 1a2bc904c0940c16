"""FED's graphs: a checkpoint in torch to ONNX in fp32, in fp16 for CUDA and in int8 for CPU. Checks names and axes."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from transformers import GPT2LMHeadModel
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch
from turnscore_core.scorers.fed.tree import build_tree

from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.fed.attention import MICROSOFT, count_fused
from turnscore_exporters.fed.model import FedModel
from turnscore_exporters.graphs.external_data import DATA_SUFFIX
from turnscore_exporters.graphs.quantization import OPSET, quantize_int8

TRACED_OPSET = 20  # specified: the first with Gelu as one operator, the last that tracing writes
BRANCH_AXES = ("branches", "branch_tokens")
INPUT_AXES: dict[str, tuple[str, ...]] = {
    "trunk_ids": ("trunks", "trunk_tokens"),
    "branch_ids": BRANCH_AXES,
    "branch_positions": BRANCH_AXES,
    "branch_ends": BRANCH_AXES,
    "branch_trunk": BRANCH_AXES[:1],
    "branch_start": BRANCH_AXES[:1],
    "predictors": ("predictors",),
    "target_predictor": ("targets",),
    "target_ids": ("targets",),
}
OUTPUT_AXES: dict[str, tuple[str, ...]] = {"loss": ("targets",)}
# Specified: a protobuf message ends at 2 GiB. Weights beyond 1.5 GB go into a file beside the graph.
MAX_INLINE_BYTES = 1_500_000_000


def export_graph(
    model: GPT2LMHeadModel,
    path: Path,
    dtype: torch.dtype = torch.float32,
    max_inline_bytes: int = MAX_INLINE_BYTES,
    *,
    is_fused: bool = False,
) -> None:
    """Writes the graph, its weights inside or in `path` + `.data`; matmuls in `dtype`, the losses always fp32.

    `is_fused` writes the form for GPUs. Raises GraphExportError unless the names and axes are right, and, in that form,
    every layer's attention is fused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        traced = Path(folder) / "traced.onnx"
        _trace(FedModel(model, dtype, is_fused=is_fused).eval(), traced, is_fused=is_fused)
        graph = onnx.load(traced)  # weights included, wherever tracing put them
    for entry in graph.opset_import:
        # The version changes nothing that the graph uses, and a model of over 2 GB cannot be converted.
        entry.version = OPSET if not entry.domain else entry.version
    _check_axes(graph, path)
    fused, wanted = count_fused(graph.graph.node), 2 * int(model.config.n_layer) if is_fused else 0
    if fused != wanted:
        raise GraphExportError(f"{path}: has {fused} fused attentions, expected {wanted}")
    save_graph(graph, path, max_inline_bytes)


def export_int8(fp32: Path, target: Path, vocabulary: int) -> None:
    """Writes the int8 form of an fp32 graph that `export_graph` wrote."""
    quantize_int8(fp32, target, build_probe(vocabulary))


def save_graph(graph: onnx.ModelProto, path: Path, max_inline_bytes: int = MAX_INLINE_BYTES) -> None:
    """Saves a graph whose weights are in memory; those beyond `max_inline_bytes` go into one file beside it."""
    if sum(len(tensor.raw_data) for tensor in graph.graph.initializer) <= max_inline_bytes:
        onnx.save(graph, path)
        return
    onnx.save(graph, path, save_as_external_data=True, all_tensors_to_one_file=True, location=path.name + DATA_SUFFIX)


def build_probe(vocabulary: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of random tokens: two conversations of 48 tokens, a small tree at the end and in the middle of each."""
    generator = np.random.default_rng(seed)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(int(each) for each in generator.integers(0, vocabulary, count))

    tree = build_tree([draw(3), draw(4), draw(5)])
    trunks = [draw(48), draw(48)]
    return FedBatch(
        [Conversation(each, (Branch(24, draw(4), tree), Branch(48, (), tree)), with_context=True) for each in trunks],
        pad_id=0,
    ).feeds()


def _trace(model: FedModel, path: Path, *, is_fused: bool) -> None:
    probe = build_probe(vocabulary=16)
    inputs = tuple(torch.from_numpy(probe[name]) for name in INPUT_AXES)
    axes = {name: dict(enumerate(names)) for name, names in (INPUT_AXES | OUTPUT_AXES).items()}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            inputs,
            str(path),
            input_names=list(INPUT_AXES),
            output_names=list(OUTPUT_AXES),
            dynamic_axes=axes,
            opset_version=TRACED_OPSET,
            custom_opsets={MICROSOFT: 1} if is_fused else None,
            dynamo=False,
        )


def _check_axes(model: onnx.ModelProto, path: Path) -> None:
    for kind, tensors, expected in (
        ("input", model.graph.input, INPUT_AXES),
        ("output", model.graph.output, OUTPUT_AXES),
    ):
        found = {tensor.name: tuple(axis.dim_param for axis in tensor.type.tensor_type.shape.dim) for tensor in tensors}
        if found != expected:
            raise GraphExportError(f"{path}: has the {kind}s {found}, expected {expected}")
