"""Converts a BERT's fp32 graph to fp16 for CUDA. Keeps inputs, outputs, axes and fused operators; never trains.

Everything that carries floats, up to the encoder's last layer norm, becomes fp16: the matmuls for the tensor cores, the
rest to avoid casts. ONNX Runtime's CUDA kernels keep fp32 where fp16 is not enough: softmax inside Attention, and the
sums of layer norms (provider option `enable_skip_layer_norm_strict_mode`, which the service sets). Pooling and heads
stay fp32: they are small, and would lose the encoder's precision.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper
from turnscore_models.manifest import GraphVariant

from turnscore_exporters.errors import GraphExportError
from turnscore_exporters.graphs.int8 import replace_nodes

DATA_SUFFIX = ".data"  # Suffix of the file next to a large graph that holds its weights.
FLOAT = TensorProto.FLOAT
LAYER_NORMS = {"LayerNormalization", "SkipLayerNormalization"}
HALF_LIMIT = 65504.0  # specified: the largest fp16 number
HALF_SUFFIX = "/fp16"


def convert_fp16(source: Path, target: Path) -> None:
    """Writes the fp16 form of a graph whose weights are in memory.

    Raises GraphExportError where it finds no encoder, or a weight beyond fp16's range.
    """
    model = onnx.load(source)
    _HalfRewriter(model.graph, str(source)).rewrite()
    onnx.save(model, target)


class _HalfRewriter:
    """Converts the encoder's nodes to fp16 in place, and casts their results where they leave it."""

    def __init__(self, graph: GraphProto, name: str) -> None:
        self._graph = graph
        self._name = name
        self._weights = {each.name: each for each in graph.initializer if each.data_type == FLOAT}
        self._constants = {
            node.output[0]: node.attribute[0].t
            for node in graph.node
            if node.op_type == "Constant" and node.attribute[0].t.data_type == FLOAT
        }
        self._halved: dict[str, str] = {}

    def rewrite(self) -> None:
        encoder = self._find_encoder()
        if not encoder:
            raise GraphExportError(f"{self._name}: has no embedding that leads to a layer norm: no encoder to convert")
        leaving = self._name_outputs({output for place in encoder for output in self._graph.node[place].output})
        inner = {output for place in encoder for output in self._graph.node[place].output if output}
        for place, node in enumerate(self._graph.node):
            for slot, name in enumerate(node.input):
                if place in encoder:
                    node.input[slot] = self._halve(name)
                elif name in inner:
                    node.input[slot] = leaving.setdefault(name, name + "/fp32")
        nodes: list[NodeProto] = []
        for node in self._graph.node:
            names = [name for name in node.output if name in leaving]
            casts = [helper.make_node("Cast", [each], [leaving[each]], leaving[each], to=FLOAT) for each in names]
            nodes += [node, *casts]
        self._replace(nodes)

    def _name_outputs(self, inner: set[str]) -> dict[str, str]:
        """Gives what the graph gives of the encoder another name, so that a cast of it may have its own."""
        named = {each.name + HALF_SUFFIX: each.name for each in self._graph.output if each.name in inner}
        renamed = {name: half for half, name in named.items()}
        for node in self._graph.node:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        return named

    def _find_encoder(self) -> set[int]:
        """Indices of the nodes that carry floats to the last layer norm, and of that one."""
        last = [place for place, node in enumerate(self._graph.node) if node.op_type in LAYER_NORMS][-1:]
        places = {output: place for place, node in enumerate(self._graph.node) for output in node.output}
        before: set[int] = set()
        while last:
            place = last.pop()
            if place not in before:
                before.add(place)
                last += [places[name] for name in self._graph.node[place].input if name in places]
        floats: set[str] = self._weights.keys() | self._constants.keys()
        found = set()
        for place in sorted(before):  # nodes stand after those that they depend on
            node = self._graph.node[place]
            if node.op_type != "Constant" and floats.intersection(node.input):
                found.add(place)
                floats = floats | set(node.output)
        return found

    def _halve(self, name: str) -> str:
        """The name of the weight's fp16 form, which is made if needed; other names stay."""
        if name not in self._halved and (name in self._weights or name in self._constants):
            tensor = self._weights.get(name) or self._constants[name]
            values: Any = numpy_helper.to_array(tensor)
            if not np.abs(values).max(initial=0.0) <= HALF_LIMIT:
                raise GraphExportError(f"{self._name}: the weight {name} exceeds fp16's range")
            self._halved[name] = name + HALF_SUFFIX
            self._graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), self._halved[name]))
        return self._halved.get(name, name)

    def _replace(self, nodes: list[NodeProto]) -> None:
        """Sets the nodes; drops unused initializers, and recorded types that have changed."""
        used = {name for node in nodes for name in node.input} | {tensor.name for tensor in self._graph.output}
        replace_nodes(self._graph, [node for node in nodes if used.intersection(node.output)])


HALF = TensorProto.FLOAT16
# Operators that compute nothing, so round nothing.
MOVES_VALUES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze"}
)
GIVES_OTHER_TYPES = frozenset({"Cast", "Equal", "Greater", "Less", "Shape", "Size"})


@contextmanager
def examined_graph(path: Path, variant: GraphVariant) -> Iterator[Path]:
    """The graph to measure on this machine's CPU: the file itself, or the emulation of `cuda-fp16`."""
    if variant != "cuda-fp16":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        emulated = Path(folder) / "emulated.onnx"
        emulate_fp16(path, emulated)
        yield emulated


def emulate_fp16(source: Path, target: Path) -> None:
    """Writes a graph that computes what the fp16 graph computes on a GPU; its weights are in `target` + `.data`."""
    model = onnx.load(source)
    graph = model.graph
    halves = find_halves(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += _emulate_node(node, halves)
    for tensor in graph.initializer:
        tensor.CopyFrom(_widen(tensor))
    replace_nodes(graph, nodes)
    onnx.save(model, target, save_as_external_data=True, location=target.name + DATA_SUFFIX)


def find_halves(graph: GraphProto) -> set[str]:
    """The names of every fp16 tensor inside the graph, whose nodes are in topological order."""
    found = {tensor.name for tensor in graph.initializer if tensor.data_type == HALF}
    for node in graph.node:
        if _makes_half(node) or (node.op_type not in GIVES_OTHER_TYPES and found.intersection(node.input)):
            found.update(name for name in node.output if name)
    return found


def _makes_half(node: NodeProto) -> bool:
    return any(
        (entry.name == "to" and entry.i == HALF) or (entry.type == AttributeProto.TENSOR and entry.t.data_type == HALF)
        for entry in node.attribute
    )


def _emulate_node(node: NodeProto, halves: set[str]) -> list[NodeProto]:
    """The node in fp32, followed by the rounding of its results."""
    for entry in node.attribute:
        if entry.type == AttributeProto.TENSOR:
            entry.t.CopyFrom(_widen(entry.t))
        if entry.name == "to" and entry.i == HALF:
            entry.i = TensorProto.FLOAT
    if node.op_type in MOVES_VALUES:
        return [node]
    roundings = []
    for place, name in enumerate(node.output):
        if name in halves:
            node.output[place] = f"{name}/exact"
            roundings += [
                helper.make_node("Cast", [f"{name}/exact"], [f"{name}/half"], f"{name}/half", to=HALF),
                helper.make_node("Cast", [f"{name}/half"], [name], f"{name}/rounded", to=TensorProto.FLOAT),
            ]
    return [node, *roundings]


def _widen(tensor: TensorProto) -> TensorProto:
    """The tensor in fp32, if it is fp16."""
    if tensor.data_type != HALF:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
