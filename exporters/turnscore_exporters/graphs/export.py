"""torch to ONNX: the fp32 graph with fused attention. Checks names and axes, not scores."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from torch import Tensor, nn
from transformers import BertModel

from turnscore_exporters.errors import GraphExportError

OPSET = 17
ROW_AXES = ("rows", "tokens")
EXAMPLE_IDS = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 0], [1, 2, 0, 0]])
"""Token ids to trace a model with: three rows of unlike length, 0 being the padding."""


class BertGraph(nn.Module):
    """What can be exported: a module that holds its BERT as `encoder`."""

    encoder: BertModel


@dataclass(frozen=True)
class GraphContract:
    """Names and axes of a graph's inputs and outputs, in order, and inputs to trace it with.

    An axis of a fixed size has no name.
    """

    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    examples: tuple[Tensor, ...]


def export_fp32(model: BertGraph, contract: GraphContract, path: Path) -> None:
    """Writes the fp32 graph with fused attention; GraphExportError unless names, axes and fusion are right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        traced = Path(folder) / "traced.onnx"
        trace_graph(model, contract, traced)
        _fuse(model, traced, path)
    check_graph(onnx.load(path), contract, path)


def trace_graph(model: nn.Module, contract: GraphContract, path: Path, opset: int = OPSET, **options: Any) -> None:
    """Writes the fp32 graph with torch's own operators, weights under their names in the module.

    `options` are torch's.
    """
    axes = {
        name: {place: axis for place, axis in enumerate(names) if axis}
        for name, names in (*contract.inputs.items(), *contract.outputs.items())
    }
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            contract.examples,
            str(path),
            input_names=list(contract.inputs),
            output_names=list(contract.outputs),
            dynamic_axes=axes,
            opset_version=opset,
            dynamo=False,
            **options,
        )


def _fuse(model: BertGraph, traced: Path, path: Path) -> None:
    """Fuses attention, layer norm and GELU; TorchScript with eager attention is the form the optimizer knows."""
    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False  # int32 inputs would change the graph's contract
    config = model.encoder.config
    with _quiet_optimizer():
        fused = optimizer.optimize_model(
            str(traced),
            model_type="bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            optimization_options=options,
            opt_level=0,
        )
    fused.save_model_to_file(str(path))
    found = sum(node.op_type == "Attention" for node in onnx.load(path).graph.node)
    if found != config.num_hidden_layers:
        raise GraphExportError(f"{path}: attention was fused in {found} of {config.num_hidden_layers} layers")


@contextlib.contextmanager
def _quiet_optimizer() -> Iterator[None]:
    """Silences the optimizer's progress."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def check_graph(model: onnx.ModelProto, contract: GraphContract, path: Path) -> None:
    """Raises GraphExportError naming the graph and the tensor unless inputs and outputs match the contract."""
    for kind, tensors, expected in (
        ("input", model.graph.input, contract.inputs),
        ("output", model.graph.output, contract.outputs),
    ):
        found = {tensor.name: tuple(axis.dim_param for axis in tensor.type.tensor_type.shape.dim) for tensor in tensors}
        if found != dict(expected):
            raise GraphExportError(f"{path}: has the {kind}s {found}, expected {expected}")
