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
from onnx import GraphProto, numpy_helper
from turnscore_core.scorers.quality import QualityOptions
from turnscore_models import Bundle
from turnscore_models.store import resolve

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import DequantizeOptions
from turnscore_exporters.quality.bundle import KIND
from turnscore_exporters.quality.model import QualityModel, QualitySettings, save_model
from turnscore_exporters.quality.value import FittedFormula, write_formula
from turnscore_exporters.training.encoders import Factors, load_encoder, write_smoothing
from turnscore_exporters.training.loop import REPORT_FILE, TRAINING_FILE

GRAPH = "cpu-int8"
# Names that the expanded attention gives its parts (`plain_operators`).
_PART = re.compile(r"/encoder/encoder/layer\.(?P<layer>\d+)/attention/self/.*/(?P<part>query|key|value)/(bias|product)")
_PROJECTION = re.compile(r"(?P<part>query|key|value|key_places|value_places)(?P<call>_\d+)?")

Array = NDArray[Any]


def recover_checkpoint(bundle: Bundle, output: Path) -> None:
    """Writes the checkpoint, with `value.json`, `training.json` and `report.json`, into the folder `output`.

    CheckpointError where the bundle is another scorer's, has no int8 graph, or its graph lacks one of the weights.
    """
    manifest = bundle.manifest
    if manifest.kind != KIND or GRAPH not in manifest.graphs or "encoder" not in manifest.training:
        raise CheckpointError(f"{manifest.reference} is no trained bundle of {KIND} with the graph {GRAPH}")
    options = QualityOptions.model_validate(manifest.options)
    named = str(manifest.training["encoder"])
    encoder = load_encoder(named, options.layout.row_tokens)
    model = QualityModel(encoder.model, QualitySettings(named, options.layout))
    heads = [bundle.path_of(each.file) for each in manifest.heads.values()]
    smoothing = put_weights(model, list(map(bundle.path_of, manifest.graphs[GRAPH].files)), heads)
    save_model(model, encoder, output)
    write_smoothing(output, smoothing)
    fitted_on = str(manifest.training.get("value.json", ""))
    write_formula(output, FittedFormula(**options.value.model_dump(), fitted_on=fitted_on))
    training = {name: value for name, value in manifest.training.items() if name != "value.json"}
    write_json(output / TRAINING_FILE, {**training, "recovered_from": manifest.reference})
    write_json(output / REPORT_FILE, manifest.agreement.get("report", {}))


def dequantize_quality(options: DequantizeOptions) -> list[str]:
    """Writes the checkpoint of a stored bundle."""
    recover_checkpoint(resolve(options.bundle), options.output)
    return [f"{options.output}: a checkpoint of {options.bundle}"]


def put_weights(model: QualityModel, encoder: Sequence[Path], heads: Sequence[Path]) -> Factors:
    """Puts the weights of an encoder's int8 graphs, as they are exported, and of sets of heads into the model.

    Returns the factors [smoothed inputs, width] that give the same int8 weights again. Raises CheckpointError where one
    of the weights is missing.
    """
    graphs = [onnx.load(path).graph for path in encoder]
    constants: dict[str, Array] = {}
    parts = [(graph, read_constants(graph)) for graph in graphs]
    for own in (*(read_constants(onnx.load(file).graph) for file in heads), *(own for _, own in parts)):
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
    return np.stack([factors for graph, own in parts for factors in _smoothing(graph, own)])


def read_constants(graph: GraphProto) -> dict[str, Array]:
    """Every constant of a graph by its name."""
    nodes = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    return {name: numpy_helper.to_array(each) for name, each in nodes.items()} | {
        tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer
    }


def _smoothing(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[Array]:
    """The factors of the smoothed inputs: an input is multiplied by one over them before it is rounded."""
    rounded = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    for node in graph.node:
        if node.op_type == "Mul" and node.output[0] in rounded:
            yield from (
                1 / constants[name] for name in node.input if name in constants and name.startswith("int8/smoothing")
            )


def _matrices(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The encoder's weight matrices: int8 by the scale of each column, and by the factor of each input channel."""
    producers = {output: node for node in graph.node for output in node.output}
    scaled = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "Mul"}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat" and node.input[0] in producers:  # else the context's, on an input
            matrix = constants[node.input[1]] * constants[node.input[3]]
            quantized = producers.get(producers[node.input[0]].input[0])
            if quantized is not None and quantized.op_type == "Mul":  # the input was smoothed, the weights took it back
                [smoothing] = [constants[name] for name in quantized.input if name in constants]
                matrix = matrix * smoothing[:, None]
            name = scaled[node.output[0]]
            yield f"{_attention_part(name) or _module_of(name)}.weight", matrix.T


def _tables(graph: GraphProto, constants: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The embedding tables: int8 by the scale of each row."""
    looked_up = {node.output[0]: constants.get(node.input[0]) for node in graph.node if node.op_type == "Gather"}
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            table, scales = (looked_up[name] for name in node.input[:2])
            assert table is not None
            assert scales is not None
            yield f"{_module_of(node.output[0])}.weight", table * scales


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

    Projections of the joint layers are named in the order in which `QualityModel.attend` calls them: of keys and values
    each layer has two, of the context's vectors and of the response's.
    """
    module = ".".join(output.strip("/").split("/")[:-1])
    match = _PROJECTION.fullmatch(module)
    if match is None:
        return module
    call = int((match["call"] or "_0")[1:])
    return f"joint.{call // 2 if match['part'] in ('key', 'value') else call}.{match['part']}"
