"""Graphs that look right and compute something else: same file name, inputs and outputs, another answer."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from turnscore_core.scorers.scorer import RawScore, Scorer, TokenPack, TurnToScore
from turnscore_models import Bundle, write_bundle


def with_graph(bundle: Bundle, change: Callable[[ModelProto], None]) -> Bundle:
    """The bundle, with checksums that fit, after `change` was made to its int8 graph."""
    file = bundle.path_of(bundle.manifest.graphs["cpu-int8"].file)
    model = onnx.load(file)
    change(model)
    onnx.save(model, file)
    return write_bundle(bundle.folder, bundle.manifest)


def permute_outputs(model: ModelProto) -> None:
    """Every output comes in reverse along its first axis; where there are two, each has the other's name."""
    graph = model.graph
    names = [each.name for each in graph.output]
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name in names:
                node.output[place] = f"was_{name}"
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = f"was_{name}"
    ends = {"from": [-1], "to": [np.iinfo(np.int64).min], "axis": [0], "step": [-1]}
    for name, value in ends.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value), f"reverse_{name}"))
    for name, source in zip(names, names[1:] + names[:1], strict=True):
        graph.node.append(helper.make_node("Slice", [f"was_{source}", *(f"reverse_{each}" for each in ends)], [name]))


def weight_matrices(model: ModelProto) -> list[TensorProto]:
    """The int8 matrices that are multiplied with; embeddings are looked up, and are none."""
    multiplied = {name for node in model.graph.node if node.op_type == "MatMulIntegerToFloat" for name in node.input}
    return [each for each in model.graph.initializer if each.name in multiplied and len(each.dims) == 2]


def corrupt_matrix(place: int) -> Callable[[ModelProto], None]:
    """One weight matrix, counted from the first layer, has its rows in reverse."""

    def change(model: ModelProto) -> None:
        tensor = weight_matrices(model)[place]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), tensor.name))

    return change


class ConstantScorer:
    """Gives every turn the same score: in value and details the middle of what the right graph gives."""

    def __init__(self, right: Scorer, turns: Sequence[TurnToScore]) -> None:
        self._right = right
        packs = right.encode(turns)
        scores = right.score(packs)
        details = {name: _middle([each.details[name] for each in scores]) for name in scores[0].details}
        self._score = RawScore(_middle([each.value for each in scores]), details)

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        return self._right.encode(turns)

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [self._score for pack in batch for _ in pack.answers]


def _middle(values: Sequence[float]) -> float:
    return (min(values) + max(values)) / 2
