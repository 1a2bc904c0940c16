"""Replaces Attention and SkipLayerNormalization by plain operators. Changes results by rounding alone.

On CPU the plain forms are faster: two Adds and LayerNormalization take a quarter of SkipLayerNormalization's time,
matmuls and Softmax about half of MultiHeadAttention's (measured, MiniLM, 32 rows of 32 tokens).
Attention also hides a matmul that is to be quantised.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from turnscore_exporters.errors import GraphExportError

MICROSOFT = "com.microsoft"
ATTENTION_ATTRIBUTES = {"mask_filter_value", "num_heads", "scale", "unidirectional"}
MASKED = -10000.0  # specified: the default of Attention's mask_filter_value; exp gives exactly 0 in fp32
# From [rows, tokens, heads, width]: keys are turned as well, ready to be the right side of a matmul.
HEADS_FIRST = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}


def expand_fused_operators(graph: GraphProto) -> None:
    """Rewrites the graph in place (opset 17 or later); GraphExportError for an Attention that is not a BERT's."""
    _Expander(graph).expand()


def replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """Sets the nodes; drops unused constants, and recorded shapes of removed tensors."""
    used = {name for node in nodes for name in node.input} | {tensor.name for tensor in graph.output}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(initializers)


class _Expander:
    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._nodes: list[NodeProto] = []
        self._masks: dict[str, str] = {}

    def expand(self) -> None:
        for node in self._graph.node:
            if node.op_type == "Attention" and node.domain == MICROSOFT:
                self._expand_attention(node)
            elif node.op_type == "SkipLayerNormalization" and not any(node.output[1:]):
                self._expand_skip_layer_norm(node)
            else:
                self._nodes.append(node)
        replace_nodes(self._graph, self._nodes)

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def _constant(self, name: str, value: npt.ArrayLike) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _expand_skip_layer_norm(self, node: NodeProto) -> None:
        output = node.output[0]
        layer, skip, gamma, *rest = node.input
        if len(rest) > 1 and rest[1]:
            layer = self._add("Add", [layer, rest[1]], f"{output}/biased")
        total = self._add("Add", [skip, layer], f"{output}/total")
        epsilon = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}.get("epsilon", 1e-12)
        self._add("LayerNormalization", [total, gamma, *rest[:1]], output, axis=-1, epsilon=epsilon)

    def _expand_attention(self, node: NodeProto) -> None:
        settings = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        source, weight, bias, mask = [*node.input, ""][:4]
        if any(node.input[4:]) or not settings.keys() <= ATTENTION_ATTRIBUTES or settings.get("unidirectional"):
            raise GraphExportError(f"{node.name}: its inputs or attributes are not those of a BERT's Attention")
        if not {weight, bias} <= self._constants.keys():
            raise GraphExportError(f"{node.name}: has an Attention whose weights are not constant")
        name = node.output[0]
        matrices = np.split(numpy_helper.to_array(self._constants[weight]), 3, axis=1)
        biases = np.split(numpy_helper.to_array(self._constants[bias]), 3)
        heads, hidden = settings["num_heads"], matrices[0].shape[1]
        scale = settings.get("scale") or 1 / math.sqrt(hidden // heads)
        matrices[0], biases[0] = matrices[0] * np.float32(scale), biases[0] * np.float32(scale)
        query, key, value = (
            self._project(source, f"{name}/{part}", matrix, vector, heads, HEADS_FIRST[part])
            for part, matrix, vector in zip(HEADS_FIRST, matrices, biases, strict=True)
        )
        scores = self._add("MatMul", [query, key], f"{name}/scores")
        if mask:
            masked = settings.get("mask_filter_value", MASKED)
            scores = self._add("Add", [scores, self._mask_scores(mask, masked)], f"{name}/masked")
        shares = self._add("Softmax", [scores], f"{name}/shares", axis=-1)
        mixed = self._add("MatMul", [shares, value], f"{name}/mixed")
        tokens_first = self._add("Transpose", [mixed], f"{name}/tokens_first", perm=[0, 2, 1, 3])
        self._add("Reshape", [tokens_first, self._constant(f"{name}/shape", np.array([0, 0, hidden]))], name)

    def _project(
        self, source: str, name: str, matrix: npt.ArrayLike, bias: npt.ArrayLike, heads: int, order: list[int]
    ) -> str:
        product = self._add("MatMul", [source, self._constant(f"{name}/weight", matrix)], f"{name}/product")
        biased = self._add("Add", [product, self._constant(f"{name}/bias", bias)], f"{name}/biased")
        shape = self._constant(f"{name}/shape", np.array([0, 0, heads, np.size(bias) // heads]))
        return self._add("Transpose", [self._add("Reshape", [biased, shape], f"{name}/heads")], name, perm=order)

    def _mask_scores(self, mask: str, masked: float) -> str:
        """The bias added to the scores [rows, 1, 1, tokens]: 0 for tokens, `masked` for padding."""
        if mask in self._producers and self._producers[mask].op_type == "ReduceSum":
            mask = self._producers[mask].input[0]  # the optimizer counts a mask into lengths
        if mask not in self._masks:
            axes = self._constant(f"{mask}/axes", np.array([1, 2]))
            wide = self._add("Unsqueeze", [mask, axes], f"{mask}/wide")
            kept = self._add("Cast", [wide], f"{mask}/kept", to=TensorProto.FLOAT)
            padding = self._add("Sub", [self._constant(f"{mask}/one", np.float32(1)), kept], f"{mask}/padding")
            factor = self._constant(f"{mask}/masked", np.float32(masked))
            self._masks[mask] = self._add("Mul", [padding, factor], f"{mask}/scores")
        return self._masks[mask]
