"""Removes padding from a BERT's graph outside of attention. Changes no score, not even by rounding.

A batch of rows of unlike length is padded to the longest, and every matmul, layer norm and GELU then computes the
padding too. Here the real tokens of all rows are concatenated, [rows, tokens, width] to [real tokens, width], after
Zhai et al. 2023 (ByteTransformer), and padded again only where attention looks across a row and where the encoder
ends. The graph's inputs and outputs stay as they are. Measured in docs/decisions.md.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import GraphProto, NodeProto, helper, numpy_helper

from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.graphs.int8 import replace_nodes

TOKEN_IDS, MASK = "input_ids", "attention_mask"
# Each token's result comes of that token alone, where the right side of a MatMul is constant and a Reduce is over the
# last axis: the leading axes may be any.
TOKEN_BY_TOKEN = {
    "Add", "BiasGelu", "DequantizeLinear", "Div", "FastGelu", "Gelu", "LayerNormalization", "MatMul",
    "MatMulIntegerToFloat", "Max", "Mul", "Neg", "QuantizeLinear", "ReduceMax", "ReduceMin", "Sub",
}  # fmt: skip


def skip_padding(path: Path) -> None:
    """Rewrites the graph in place, as `quantize_int8` writes it; GraphExportError where it is not a BERT's.

    Every row needs at least one token that is not padding.
    """
    model = onnx.load(path)
    _Unpadder(model.graph).rewrite()
    onnx.save(model, path)


class _Unpadder:
    """Walks the nodes in order. A tensor in `_flat` is [real tokens, ...] instead of [rows, tokens, ...]."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._nodes: list[NodeProto] = []
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
            padded = [self._pad(name) if name in self._flat else name for name in node.input]
            node.input[:] = padded
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

    def _add(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> str:
        name = f"unpadded/{name}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def _constant(self, name: str, value: npt.NDArray[Any]) -> str:
        name = f"unpadded/{name}"
        if name not in self._constants:
            tensor = numpy_helper.from_array(value.astype(np.int64), name)
            self._constants[name] = tensor
            self._graph.initializer.append(tensor)
        return name
