"""torch to ONNX: the fp32 graph with fused attention. Checks names and axes, not scores."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions

from turnscore_exporters.engagement_model import EngagementModel
from turnscore_exporters.errors import GraphExportError

OPSET = 17
INPUT_AXES: dict[str, tuple[str, ...]] = {
    "input_ids": ("rows", "tokens"),
    "attention_mask": ("rows", "tokens"),
    "query_row": ("pairs",),
    "reply_row": ("pairs",),
}
OUTPUT_AXES: dict[str, tuple[str, ...]] = {"probability": ("pairs",)}


def export_fp32(model: EngagementModel, path: Path) -> None:
    """Writes the fp32 graph with fused attention; GraphExportError unless names, axes and fusion are right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        traced = Path(folder) / "traced.onnx"
        _trace(model, traced)
        _fuse(model, traced, path)
    check_graph(path)


def _trace(model: EngagementModel, path: Path) -> None:
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 0], [1, 2, 0, 0]])
    inputs = (ids, (ids > 0).long(), torch.tensor([0, 2]), torch.tensor([1, 2]))
    axes = {name: dict(enumerate(names)) for name, names in (INPUT_AXES | OUTPUT_AXES).items()}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            inputs,
            str(path),
            input_names=list(INPUT_AXES),
            output_names=list(OUTPUT_AXES),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def _fuse(model: EngagementModel, traced: Path, path: Path) -> None:
    """Fuses attention, layer norm and GELU; TorchScript with eager attention is the form the optimizer knows."""
    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False  # its int32 inputs would change the graph's contract
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
    """The optimizer prints and logs its progress; none of it is ours."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def check_graph(path: Path) -> None:
    """GraphExportError naming the graph and the tensor unless inputs and outputs have the contract's names and axes."""
    graph = onnx.load(path).graph
    for kind, tensors, expected in (("input", graph.input, INPUT_AXES), ("output", graph.output, OUTPUT_AXES)):
        found = {tensor.name: tuple(axis.dim_param for axis in tensor.type.tensor_type.shape.dim) for tensor in tensors}
        if found != expected:
            raise GraphExportError(f"{path}: has the {kind}s {found}, expected {expected}")
