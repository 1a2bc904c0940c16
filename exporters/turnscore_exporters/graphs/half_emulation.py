"""Emulates an fp16 graph on a CPU as a GPU computes it: every result rounded to fp16. For verification only.

ONNX Runtime's CPU provider computes an fp16 graph in fp32 throughout: it rounds the weights alone, and what overflows
fp16 stays finite (measured with 1.31.1). So the graph is rewritten: weights keep their fp16 values, every operator
computes in fp32, as tensor cores sum and the fused kernels do, and each result goes through fp16 and back.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper
from turnscore_models import GraphVariant

HALF = TensorProto.FLOAT16
MOVES_VALUES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze"}
)
"""Operators that compute nothing, so round nothing."""
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
    weights = [_widen(tensor) for tensor in graph.initializer]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)
    onnx.save(model, target, save_as_external_data=True, location=target.name + ".data")


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
