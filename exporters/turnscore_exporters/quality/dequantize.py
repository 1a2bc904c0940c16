"""A quality checkpoint out of a bundle's int8 graph, for where the one it was made of is lost. Trains nothing.

int8 weights times their scales are the checkpoint's weights to half a step, a 254th of the largest of a column; heads,
biases and layer norms are in the graph as they were. What such a checkpoint is exported to is measured like any other.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, numpy_helper
from turnscore_core.scorers.quality import QualityOptions
from turnscore_models.bundle import Bundle
from turnscore_models.store import resolve

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.graphs.int8 import quantize_matrix
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import DequantizeOptions
from turnscore_exporters.quality.bundle import GRAPH, KIND, read_constants, read_heads
from turnscore_exporters.quality.model import JointLayers, QualityModel, QualitySettings
from turnscore_exporters.quality.value import VALUE_FILE, FittedFormula
from turnscore_exporters.training.encoders import load_encoder, save_model
from turnscore_exporters.training.loop import REPORT_FILE, TRAINING_FILE

USER_TURNS = "reaction"
# Names that the expanded attention gives its parts (`plain_operators`).
_PART = re.compile(r"/encoder/encoder/layer\.(?P<layer>\d+)/attention/self/.*/(?P<part>query|key|value)/(bias|product)")
_PROJECTION = re.compile(r"(?P<part>query|key|value|key_places|value_places)(?P<call>_\d+)?")

Array = NDArray[Any]


def dequantize_quality(given: DequantizeOptions) -> list[str]:
    """Writes the checkpoint, with `value.json`, `training.json` and `report.json`, into the folder `output`.

    CheckpointError where the bundle is another scorer's, has no int8 graph, or lacks one of the weights.
    """
    bundle, output = resolve(given.bundle), given.output
    manifest = bundle.manifest
    if manifest.kind != KIND or GRAPH not in manifest.graphs or "encoder" not in manifest.training:
        raise CheckpointError(f"{manifest.reference} is not a trained {KIND} bundle with graph {GRAPH}")
    heads = _collect_heads(bundle, given.reaction)
    options = QualityOptions.model_validate(manifest.options)
    named = str(manifest.training["encoder"])
    encoder = load_encoder(named, options.layout.row_tokens)
    model = QualityModel(encoder.model, QualitySettings(named, options.layout))
    put_weights(model, list(map(bundle.path_of, manifest.graphs[GRAPH].files)), heads)
    save_model(model, encoder, output)
    fitted_on = str(manifest.training.get("value.json", ""))
    write_json(output / VALUE_FILE, FittedFormula(**options.value.model_dump(), fitted_on=fitted_on))
    training = {name: value for name, value in manifest.training.items() if name != "value.json"}
    write_json(output / TRAINING_FILE, {**training, "recovered_from": manifest.reference})
    write_json(output / REPORT_FILE, manifest.agreement.get("report", {}))
    return [f"{output}: a checkpoint of {given.bundle}"]


def _collect_heads(bundle: Bundle, reaction: str | None) -> list[Path]:
    """The bundle's sets of heads, and those for user turns of the bundle `reaction`, which served ones have apart."""
    own = bundle.manifest.heads
    found = {name: bundle.path_of(each.file) for name, each in own.items()}
    if reaction is not None:
        other = resolve(reaction)
        heads = other.manifest.heads.get(USER_TURNS)
        if heads is None or not {sha for each in own.values() for sha in each.encoders} <= set(heads.encoders):
            raise CheckpointError(
                f"{other.manifest.reference} has no heads for user turns on {bundle.folder}'s encoder"
            )
        found[USER_TURNS] = other.path_of(heads.file)
    if USER_TURNS not in found:
        raise CheckpointError(
            f"{bundle.manifest.reference} has no heads for user turns; name a bundle of reaction with --reaction"
        )
    return list(found.values())


def put_weights(model: QualityModel, encoder: Sequence[Path], heads: Sequence[Path]) -> None:
    """Puts the weights of an encoder's int8 graphs, as they are exported, and of sets of heads into the model.

    Raises CheckpointError where one of the weights is missing.
    """
    graphs = [onnx.load(path).graph for path in encoder]
    constants: dict[str, Array] = {}
    parts = [(graph, read_constants(graph)) for graph in graphs]
    for own in (*map(read_heads, heads), *(own for _, own in parts)):
        constants |= {name.removeprefix("model.").removesuffix("/half"): value for name, value in own.items()}
    wanted = model.state_dict()
    found = {name: value for name, value in constants.items() if name in wanted}
    found |= dict(_attention_biases(constants))
    for graph, own in parts:
        found |= dict(_matrices(graph, own)) | dict(_tables(graph, own))
    config = model.encoder.config
    for name in found:
        if ".attention.self.query." in name:  # the graph's scores are divided by it already
            found[name] = found[name] * np.float32(math.sqrt(config.hidden_size // config.num_attention_heads))
    if missing := sorted(wanted.keys() - found.keys()):
        raise CheckpointError(f"{encoder[0]}: holds no {missing[0]}, nor {len(missing) - 1} others")
    model.load_state_dict({name: torch.from_numpy(found[name].copy()).reshape(wanted[name].shape) for name in wanted})


def _products(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[tuple[str, NodeProto, Array | None]]:
    """Every product with a weight matrix: the module it is of, and what its input was multiplied by, where smoothed.

    The context's inputs are rounded by another graph, so that theirs is not found here.
    """
    producers = {output: node for node in graph.node for output in node.output}
    scaled = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "Mul"}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            name = scaled[node.output[0]]
            rounded, smoothing = producers.get(node.input[0]), None
            source = None if rounded is None else producers.get(rounded.input[0])
            if source is not None and source.op_type == "Mul":
                [smoothing] = [constants[each] for each in source.input if each in constants]
            yield _attention_part(name) or _module_of(name), node, smoothing


def _matrices(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The encoder's weight matrices: int8 by the scale of each column, and by the factor of each input channel."""
    given = {each.name for each in graph.input}
    for module, node, smoothing in _products(graph, constants):
        if node.input[0] not in given:  # else the context's, which are the response's
            matrix = constants[node.input[1]] * constants[node.input[3]]
            yield f"{module}.weight", (matrix if smoothing is None else matrix * smoothing[:, None]).T


def _lookups(graph: GraphProto) -> Iterator[tuple[str, str, str]]:
    """Every embedding table: the name of its weight, and those of its values and of its rows' scales."""
    looked_up = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Gather"}
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            values, scales = (looked_up[name] for name in node.input[:2])
            yield f"{_module_of(node.output[0])}.weight", values, scales


def _tables(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The embedding tables: int8 by the scale of each row."""
    for name, values, scales in _lookups(graph):
        yield name, constants[values] * constants[scales]


def read_joint_layers(path: Path) -> tuple[JointLayers, list[Array]]:
    """The layers of an encoder's second int8 graph, and what their context's vectors [width] were multiplied by.

    Raises CheckpointError where one of the weights is missing.
    """
    graph = onnx.load(path).graph
    constants = read_constants(graph)
    found = {name: value for name, value in constants.items() if name.startswith("joint.")}
    found |= dict(_matrices(graph, constants)) | dict(_tables(graph, constants))
    smoothing = {module: factors for module, _, factors in _products(graph, constants) if factors is not None}
    shapes = [constants.get(node.input[1]) for node in graph.node if node.op_type == "Reshape"]
    heads = next((int(each[2]) for each in shapes if each is not None and each.shape == (4,)), 0)
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    try:
        inner, width = found["joint.0.outer.weight"].T.shape
        epsilon = next(each.f for node in norms for each in node.attribute if each.name == "epsilon")
        layers = JointLayers(width, heads, inner, epsilon)
        layers.load_state_dict({name: torch.from_numpy(found[f"joint.{name}"].copy()) for name in layers.state_dict()})
        return layers, [smoothing[f"joint.{place}.key"] for place in range(len(layers.layers))]
    except (KeyError, StopIteration) as error:
        raise CheckpointError(f"{path}: is not the second int8 graph of an encoder: it holds no {error}") from error


def write_joint_layers(layers: JointLayers, source: Path, target: Path) -> None:
    """Writes the second int8 graph of `source` with the weights of these layers, which `read_joint_layers` gave."""
    model = onnx.load(source)
    graph, constants = model.graph, read_constants(model.graph)
    weights = {f"joint.{name}": weight.detach().numpy() for name, weight in layers.state_dict().items()}
    written = {name: weights[name] for name in constants.keys() & weights.keys()}
    products = list(_products(graph, constants))
    smoothing = {module: factors for module, _, factors in products if factors is not None}
    for module, node, _ in products:
        matrix = weights[f"{module}.weight"].T
        if module in smoothing:
            matrix = matrix / smoothing[module][:, None]
        written[node.input[1]], scales = quantize_matrix(matrix, axis=0)
        written[node.input[3]] = scales[0]
    for name, *parts in _lookups(graph):
        written |= dict(zip(parts, quantize_matrix(weights[name], axis=1), strict=True))
    for tensor in graph.initializer:
        if tensor.name in written:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(written[tensor.name]), tensor.name))
    onnx.save(model, target)


def _attention_biases(constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Those of query, key and value, which the fused attention held as one."""
    for name, value in constants.items():
        if part := _attention_part(name):
            yield f"{part}.bias", value


def _attention_part(name: str) -> str | None:
    """The module of query, key or value that a tensor of the expanded attention belongs to."""
    match = _PART.fullmatch(name)
    return match and f"encoder.encoder.layer.{match['layer']}.attention.self.{match['part']}"


def _module_of(output: str) -> str:
    """The module whose operator gives the tensor: `/encoder/pooler/MatMul_output_0` is of `encoder.pooler`.

    Projections of the joint layers are named in the order in which `JointLayers.attend` calls them: of keys and values
    each layer has two, of the context's vectors and of the response's.
    """
    module = ".".join(output.strip("/").split("/")[:-1])
    match = _PROJECTION.fullmatch(module)
    if match is None:
        return module
    call = int((match["call"] or "_0")[1:])
    return f"joint.{call // 2 if match['part'] in ('key', 'value') else call}.{match['part']}"
