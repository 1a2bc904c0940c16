"""torch to ONNX: the fp32 graph with fused attention, and graphs that skip padding. Checks names and axes."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import GraphProto, NodeProto, helper, numpy_helper
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.graphs.int8 import GraphRewriter, replace_nodes

OPSET = 17
ROW_AXES = ("rows", "tokens")
# Token ids to trace a model with: three rows of unlike length, 0 being the padding.
EXAMPLE_IDS = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 0], [1, 2, 0, 0]])


class BertGraph(nn.Module):
    """What can be exported: a module that holds its BERT as `encoder`, or sets the other two."""

    encoder: BertModel

    @cached_property
    def config(self) -> BertConfig:
        """The BERT's."""
        config: BertConfig = self.encoder.config
        return config

    @cached_property
    def fused_layers(self) -> int:
        """How many layers' attention must be fused."""
        return int(self.config.num_hidden_layers)

    def read_tokens(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Vectors of the tokens of texts, which are all of the first segment: [rows, tokens, width], float32."""
        segments = torch.zeros_like(input_ids)
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=segments)
        tokens: Tensor = found.last_hidden_state.float()
        return tokens


def average_tokens(tokens: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real tokens of each row, [rows, width] of [rows, tokens, width]."""
    weight = mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * weight).sum(1) / weight.sum(1).clamp_min(1.0)


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
    config = model.config
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
    if found != model.fused_layers:
        raise GraphExportError(f"{path}: attention was fused in {found} of {model.fused_layers} layers")


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


TOKEN_IDS, MASK = "input_ids", "attention_mask"
# Each token's result comes of that token alone, where the right side of a MatMul is constant and a Reduce is over the
# last axis: the leading axes may be any.
TOKEN_BY_TOKEN = {
    "Add", "BiasGelu", "DequantizeLinear", "Div", "FastGelu", "Gelu", "LayerNormalization", "MatMul",
    "MatMulIntegerToFloat", "Max", "Mul", "Neg", "QuantizeLinear", "ReduceMax", "ReduceMin", "Sub",
}  # fmt: skip


def skip_padding(path: Path) -> None:
    """Rewrites the graph in place, as `quantize_int8` writes it; GraphExportError where it is not a BERT's.

    A batch of rows of unlike length is padded to the longest, and every matmul, layer norm and GELU then computes the
    padding too. Here the real tokens of all rows are concatenated, [rows, tokens, width] to [real tokens, width], after
    Zhai et al. 2023 (ByteTransformer), and padded again only where attention looks across a row and where the encoder
    ends. Inputs and outputs stay as they are, and no score changes, not even by rounding. Every row needs at least one
    token that is not padding. Measured in results/decisions.json.
    """
    model = onnx.load(path)
    _Unpadder(model.graph).rewrite()
    onnx.save(model, path)


class _Unpadder(GraphRewriter):
    """Walks the nodes in order. A tensor in `_flat` is [real tokens, ...] instead of [rows, tokens, ...]."""

    def __init__(self, graph: GraphProto) -> None:
        super().__init__(graph)
        self._flat: set[str] = set()
        self._padded: dict[str, str] = {}
        self._attentions = 0

    def rewrite(self) -> None:
        if not {TOKEN_IDS, MASK} <= {tensor.name for tensor in self._graph.input}:
            raise GraphExportError(f"the graph has no inputs {TOKEN_IDS} and {MASK}")
        nodes = list(self._graph.node)
        self._find_places()
        for node in nodes:
            self._rewrite(node)
        for tensor in self._graph.output:
            if tensor.name in self._flat:
                # What the graph gives keeps its name and its axes.
                self._rename(tensor.name, f"{tensor.name}/real")
                self._rename(self._pad(f"{tensor.name}/real"), tensor.name)
        if not self._attentions:
            raise GraphExportError("the graph has no attention between whose heads padding could be skipped")
        replace_nodes(self._graph, self._nodes)

    def _find_places(self) -> None:
        """The places of the real tokens among all, and for each place the real token at or before it."""
        mask = self._add("Reshape", [MASK, self._constant("all", np.array([-1]))], "mask")
        pairs = self._add("NonZero", [mask], "nonzero")
        self._places = self._add("Squeeze", [pairs, self._constant("first_axis", np.array([0]))], "places")
        count = self._add("CumSum", [mask, self._constant("axis", np.array(0))], "count")
        last = self._add("Sub", [count, self._constant("one", np.array(1))], "last")
        self._tokens = self._add("Max", [last, self._constant("zero", np.array(0))], "tokens")
        self._shape = self._add("Shape", [TOKEN_IDS], "shape")

    def _rewrite(self, node: NodeProto) -> None:
        if self._is_lookup(node):
            self._add_lookup(node)
        elif self._is_end_of_attention(node):
            self._leave_attention(node)
        elif node.op_type == "Reshape" and node.input[0] in self._flat and self._keeps_rows(node):
            self._enter_attention(node)
        elif self._is_token_by_token(node) or (
            node.op_type in {"Shape", "ConstantOfShape"} and node.input[0] in self._flat
        ):
            self._nodes.append(node)
            self._flat.update(node.output)
        else:
            node.input[:] = [self._pad(name) if name in self._flat else name for name in node.input]
            self._nodes.append(node)

    def _is_lookup(self, node: NodeProto) -> bool:
        return node.op_type == "Gather" and node.input[0] in self._constants and self._is_of_tokens(node.input[1])

    def _is_of_tokens(self, name: str) -> bool:
        """Whether they are token ids, or made of the ids' shape: the positions, the segment ids."""
        if name == TOKEN_IDS:
            return True
        node = self._producers.get(name)
        if node is None or node.op_type not in {"Slice", "ConstantOfShape", "Expand"}:
            return False
        return any(self._is_made_of(each, TOKEN_IDS) for each in node.input)

    def _is_made_of(self, name: str, source: str) -> bool:
        node = self._producers.get(name)
        return name == source or (node is not None and any(self._is_made_of(each, source) for each in node.input))

    def _add_lookup(self, node: NodeProto) -> None:
        index = node.input[1]
        flat = f"unpadded/{index}"
        if flat not in self._flat:
            whole = self._add("Expand", [index, self._shape], f"{index}/whole")
            line = self._add("Reshape", [whole, self._constant("all", np.array([-1]))], f"{index}/line")
            self._add("Gather", [line, self._places], index)
            self._flat.add(flat)
        node.input[1] = flat
        self._nodes.append(node)
        self._flat.update(node.output)

    def _is_token_by_token(self, node: NodeProto) -> bool:
        inputs = [name for name in node.input if name and name not in self._constants]
        if node.op_type not in TOKEN_BY_TOKEN or not inputs or not all(name in self._flat for name in inputs):
            return False
        if node.op_type == "MatMul":
            return node.input[1] in self._constants
        return not node.op_type.startswith("Reduce") or self._reduces_width(node)

    def _reduces_width(self, node: NodeProto) -> bool:
        """Whether the Reduce is over the last axis; a pooling is over the tokens of a row."""
        axes = self._constants.get(node.input[1]) if len(node.input) > 1 else None
        return axes is not None and numpy_helper.to_array(axes).tolist() == [-1]

    def _keeps_rows(self, node: NodeProto) -> bool:
        """Whether the reshape leaves the axes of rows and tokens alone."""
        return node.input[1] in self._constants and self._axes(node)[:2] == [0, 0]

    def _axes(self, node: NodeProto) -> list[int]:
        axes: list[int] = numpy_helper.to_array(self._constants[node.input[1]]).tolist()
        return axes

    def _enter_attention(self, node: NodeProto) -> None:
        """[real tokens, width] to [rows, tokens, heads, width of a head]."""
        heads = self._constant(f"{node.output[0]}/heads", np.array(self._axes(node)[2:]))
        shape = self._add("Concat", [self._shape, heads], f"{node.output[0]}/shape", axis=0)
        everywhere = self._add("Gather", [node.input[0], self._tokens], f"{node.output[0]}/everywhere")
        node.input[:] = [everywhere, shape]
        self._nodes.append(node)

    def _is_end_of_attention(self, node: NodeProto) -> bool:
        """The reshape that joins the heads, transposed behind the tokens again."""
        before = self._producers.get(node.input[0]) if node.op_type == "Reshape" else None
        return before is not None and before.op_type == "Transpose" and self._keeps_rows(node)

    def _leave_attention(self, node: NodeProto) -> None:
        """[rows, tokens, heads, width of a head] to [real tokens, width]."""
        [output] = node.output
        width = self._constant(f"{output}/line", np.array([-1, *self._axes(node)[2:]]))
        line = self._add("Reshape", [node.input[0], width], f"{output}/everywhere")
        self._nodes.append(helper.make_node("Gather", [line, self._places], [output], f"unpadded/{output}/real"))
        self._flat.add(output)
        self._attentions += 1

    def _pad(self, name: str) -> str:
        """[real tokens, width] to [rows, tokens, width]; padding holds values that a mask removes later."""
        if name not in self._padded:
            width = self._constant(f"{name}/width", np.array([-1]))
            shape = self._add("Concat", [self._shape, width], f"{name}/shape", axis=0)
            everywhere = self._add("Gather", [name, self._tokens], f"{name}/everywhere")
            self._padded[name] = self._add("Reshape", [everywhere, shape], f"{name}/padded")
        return self._padded[name]

    def _rename(self, old: str, new: str) -> None:
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [new if each == old else each for each in names]

    def _add(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        return super()._add(operator, inputs, f"unpadded/{output}", domain, **attributes)

    def _constant(self, name: str, value: npt.ArrayLike) -> str:
        name = f"unpadded/{name}"
        if name not in self._constants:
            super()._constant(name, np.asarray(value, dtype=np.int64))
            self._constants[name] = self._graph.initializer[-1]
        return name
