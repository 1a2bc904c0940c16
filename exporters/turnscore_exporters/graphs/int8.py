"""fp32 graph to int8 graph whose results do not depend on the batch. Keeps inputs, outputs and axes; never trains.

One scale per tensor, as `quantize_dynamic` takes it, lets a text's neighbours in the batch change its vector. Here each
token has its own scale, found while the graph runs, and each column of a weight matrix has its own, stored with it:

    scale[token] = max|x[token]| / 127
    y[token, column] = scale[token] * column_scale[column] * sum(int8(x[token] / scale[token]) * int8(w[:, column]))

The sum is exact in integers, so neither neighbours nor padding reach it. Inputs that come from a layer norm are first
divided by a factor per channel that the weights take back (SmoothQuant, Xiao et al. 2023, equation 4): a few channels
are ten times larger than the rest and would use up the scale. Embeddings are int8 with one scale per row. Softmax,
layer norms, GELU and heads on pooled vectors stay fp32. Measured in results/decisions.json.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter

from turnscore_exporters.errors import GraphExportError

MICROSOFT = "com.microsoft"
ATTENTION_ATTRIBUTES = {"mask_filter_value", "num_heads", "scale", "unidirectional"}
MASKED = -10000.0  # specified: the default of Attention's mask_filter_value; exp gives exactly 0 in fp32
# From [rows, tokens, heads, width]: keys are turned as well, ready to be the right side of a matmul.
HEADS_FIRST = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}


def replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """Sets the nodes; drops unused constants, and recorded shapes of removed tensors."""
    used = {name for node in nodes for name in node.input} | {tensor.name for tensor in graph.output}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(initializers)


class GraphRewriter:
    """Collects the nodes that take the place of a graph's own."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._nodes: list[NodeProto] = []

    def _add(self, operator: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], output, domain=domain, **attributes))
        return output

    def _constant(self, name: str, value: npt.ArrayLike) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name


class _Expander(GraphRewriter):
    """Makes fused operators plain ones, in place, in a graph of opset 17 or later."""

    def __init__(self, graph: GraphProto) -> None:
        super().__init__(graph)
        self._masks: dict[str, str] = {}

    def expand(self) -> None:
        """Raises GraphExportError for an Attention that is not a BERT's."""
        for node in self._graph.node:
            if node.op_type == "Attention" and node.domain == MICROSOFT:
                self._expand_attention(node)
            elif node.op_type == "SkipLayerNormalization" and not any(node.output[1:]):
                self._expand_skip_layer_norm(node)
            else:
                self._nodes.append(node)
        replace_nodes(self._graph, self._nodes)

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
        projected = []
        for (part, order), matrix, vector in zip(HEADS_FIRST.items(), matrices, biases, strict=True):
            own = f"{name}/{part}"
            product = self._add("MatMul", [source, self._constant(f"{own}/weight", matrix)], f"{own}/product")
            biased = self._add("Add", [product, self._constant(f"{own}/bias", vector)], f"{own}/biased")
            shape = self._constant(f"{own}/shape", np.array([0, 0, heads, np.size(vector) // heads]))
            turned = self._add("Reshape", [biased, shape], f"{own}/heads")
            projected.append(self._add("Transpose", [turned], own, perm=order))
        query, key, value = projected
        scores = self._add("MatMul", [query, key], f"{name}/scores")
        if mask:
            masked = settings.get("mask_filter_value", MASKED)
            scores = self._add("Add", [scores, self._mask_scores(mask, masked)], f"{name}/masked")
        shares = self._add("Softmax", [scores], f"{name}/shares", axis=-1)
        mixed = self._add("MatMul", [shares, value], f"{name}/mixed")
        tokens_first = self._add("Transpose", [mixed], f"{name}/tokens_first", perm=[0, 2, 1, 3])
        self._add("Reshape", [tokens_first, self._constant(f"{name}/shape", np.array([0, 0, hidden]))], name)

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


Array = npt.NDArray[Any]

OPSET = 21  # specified: the first whose QuantizeLinear takes one scale per token without reshaping
MIN_WEIGHTS = 4096  # chosen: quantising its input costs more than a smaller matmul
MIN_HALF = 250_000  # chosen: a smaller matrix saves less than half a megabyte
INT8_LIMIT = 127
TINY = 1e-10  # chosen: keeps a row of zeros from dividing by zero
# The kernels for uint8 inputs and int8 weights are the fast ones (measured: int8 times int8 is 15 times slower).
ZERO_POINT = 128
# GELU never falls below -0.17, so most of uint8 can hold what is above zero.
GELU_ZERO_POINT, GELU_MINIMUM = 32, -0.1705
# Measured on MiniLM: exponents of 0.5 to 0.8 are within a tenth of the best.
SMOOTHING_EXPONENT = 0.7
# Chosen: random token ids find the same large channels as real text (measured), so no text is needed.
PROBE_ROWS, PROBE_TOKENS = 16, 32

LAYER_NORMS = {"LayerNormalization", "SkipLayerNormalization"}
GELUS = {"BiasGelu", "FastGelu", "Gelu"}
_ROUNDS = {"ConstantOfShape", "Max", "Mul", "Neg", "QuantizeLinear", "ReduceMax", "ReduceMin", "Shape"}
# Their output has the leading axes of their first input. Were that ever wrong, the runtime would refuse the graph.
KEEPS_TOKENS = LAYER_NORMS | GELUS | {"Add", "MatMul"}


def quantize_int8(source: Path, target: Path, probe_inputs: Mapping[str, Array] | None = None) -> None:
    """Writes the int8 form of a transformer's graph, plain or with fused attention.

    `probe_inputs` feed the graph to find the large channels; without any, a BERT's are generated. Raises
    GraphExportError if it finds nothing to quantise.
    """
    model = onnx.load(source)
    if next(entry.version for entry in model.opset_import if not entry.domain) < OPSET:
        model = version_converter.convert_version(model, OPSET)
    _Expander(model.graph).expand()
    # The graph's constant fp32 matrices.
    weights = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2
    }
    layers = _group_layers(model.graph, weights)
    if not layers:
        raise GraphExportError(f"{source}: has no matmul with a constant weight matrix to quantise")
    producers = {output: node for node in model.graph.node for output in node.output}
    smoothed = [name for name in layers if name in producers and producers[name].op_type in LAYER_NORMS]
    ranges = _probe_ranges(model, weights, smoothed, probe_inputs) if smoothed else {}
    matrices = {name: [weights[node.input[1]] for node in layers[name]] for name in smoothed}
    factors = {name: smoothing_factors(ranges[name], matrices[name]) for name in smoothed}
    _Int8Rewriter(model.graph, weights, factors).rewrite()
    store_half(model.graph)
    if not any(entry.domain == MICROSOFT for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    onnx.save(model, target)


def move_rounding(first: Path, second: Path, moved: Mapping[str, str]) -> None:
    """Rounds token vectors in the graph that gives them, not in the one that takes them; in place.

    `moved` has inputs [tokens, width] of the second, as `quantize_int8` wrote it, each with the output [..., width] of
    the first that is fed to it. The first then gives, and the second takes, X_values (uint8) and X_scales [..., 1] in
    the place of each X: a quarter of the bytes, and the same results to the last bit.
    """
    source, target = onnx.load(first), onnx.load(second)
    for taken, given in moved.items():
        _move_rounding(source.graph, target.graph, taken, given)
    onnx.save(source, first)
    onnx.save(target, second)


def _move_rounding(source: GraphProto, target: GraphProto, taken: str, given: str) -> None:
    constants = {tensor.name: tensor for tensor in target.initializer} | {
        node.output[0]: node.attribute[0].t for node in target.node if node.op_type == "Constant"
    }
    derived, nodes = {taken}, []
    for node in target.node:
        varying = [name for name in node.input if name not in constants]
        if node.op_type in _ROUNDS and varying and derived.issuperset(varying):
            derived.update(node.output)
            nodes.append(node)
    values = [node for node in nodes if node.op_type == "QuantizeLinear"]
    if len(values) != 1:
        raise GraphExportError(f"{taken}: is rounded {len(values)} times in the graph that takes it, expected once")
    scales, rounded = values[0].input[1], values[0].output[0]
    names = {taken: given, rounded: f"{given}_values", scales: f"{given}_scales"}
    for node in nodes:
        moved = NodeProto()
        moved.CopyFrom(node)
        moved.name = f"{given}/{node.name}"
        moved.input[:] = [names.get(name, f"{given}/{name}") for name in node.input]
        moved.output[:] = [names.get(name, f"{given}/{name}") for name in node.output]
        source.node.append(moved)
        for name in constants.keys() & set(node.input):
            tensor = numpy_helper.from_array(numpy_helper.to_array(constants[name]), f"{given}/{name}")
            if all(each.name != tensor.name for each in source.initializer):
                source.initializer.append(tensor)
    kept = [node for node in target.node if node not in nodes]
    names = {rounded: f"{taken}_values", scales: f"{taken}_scales"}
    for node in kept:
        node.input[:] = [names.get(name, name) for name in node.input]
    replace_nodes(target, kept)
    needed = any(each.name != taken and each.name.endswith(f"_{given}") for each in target.input)
    for graph, whole, name in ((target.input, taken, taken), (source.output, "" if needed else given, given)):
        [info] = [each for each in graph if each.name == name]
        axes = [axis.dim_param or axis.dim_value for axis in info.type.tensor_type.shape.dim]
        rest = [each for each in graph if each.name != whole]
        rest.append(helper.make_tensor_value_info(f"{name}_values", TensorProto.UINT8, axes))
        rest.append(helper.make_tensor_value_info(f"{name}_scales", TensorProto.FLOAT, [*axes[:-1], 1]))
        del graph[:]
        graph.extend(rest)


def store_half(graph: GraphProto) -> None:
    """Stores the large matrices that stay fp32, of heads on pooled vectors, as fp16; the runtime widens them once.

    It moves a head's answer by less than the int8 layers before it do (measured on quality: 1e-4), for half the bytes.
    """
    used = {node.input[1] for node in graph.node if node.op_type == "Gemm"}
    for tensor in [each for each in graph.initializer if each.name in used and np.prod(each.dims) >= MIN_HALF]:
        stored = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), f"{tensor.name}/half")
        graph.initializer.remove(tensor)
        graph.initializer.append(stored)
        graph.node.insert(0, helper.make_node("Cast", [stored.name], [tensor.name], stored.name, to=TensorProto.FLOAT))


def _is_layer(node: NodeProto, weights: dict[str, Array]) -> bool:
    return node.op_type == "MatMul" and node.input[1] in weights and weights[node.input[1]].size >= MIN_WEIGHTS


def _is_embedding(node: NodeProto, weights: dict[str, Array]) -> bool:
    return node.op_type == "Gather" and node.input[0] in weights and not any(entry.i for entry in node.attribute)


def _group_layers(graph: GraphProto, weights: dict[str, Array]) -> dict[str, list[NodeProto]]:
    """The matmuls to quantise, by the name of their shared input."""
    layers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        if _is_layer(node, weights):
            layers.setdefault(node.input[0], []).append(node)
    return layers


def _probe_ranges(
    model: ModelProto, weights: dict[str, Array], tensors: list[str], inputs: Mapping[str, Array] | None
) -> dict[str, Array]:
    """Largest absolute value of each channel of the tensors, over rows of random token ids."""
    nodes: list[NodeProto] = []
    needed = set(tensors)
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.insert(0, node)
            needed.update(node.input)
    probe = helper.make_graph(
        nodes,
        "probe",
        [tensor for tensor in model.graph.input if tensor.name in needed],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in tensors],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    proto = helper.make_model(probe, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # the runtime warns of constants it folds away
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "probe.onnx"  # with its weights next to it, since a message ends at 2 GiB
        onnx.save(proto, file, save_as_external_data=True, location="probe.data")
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feeds = _probe_inputs(probe, weights) if inputs is None else {each.name: inputs[each.name] for each in probe.input}
    found = zip(tensors, session.run(tensors, feeds), strict=True)
    return {name: np.abs(values).reshape(-1, values.shape[-1]).max(0) for name, values in found}


def _probe_inputs(probe: GraphProto, weights: dict[str, Array]) -> dict[str, Array]:
    """Random ids for the input that looks up the largest table; ones, a full mask, for the others.

    Only tables that an input looks up count: a table of positions may be larger than a small vocabulary's.
    """
    names = [tensor.name for tensor in probe.input]
    lookups = {
        node.input[1]: len(weights[node.input[0]])
        for node in probe.node
        if _is_embedding(node, weights) and node.input[1] in names
    }
    token_ids = max(lookups, key=lambda name: lookups[name], default="")
    if not token_ids:
        raise GraphExportError("no input of the graph looks up an embedding table")
    shape = (PROBE_ROWS, PROBE_TOKENS)
    inputs: dict[str, Array] = {name: np.ones(shape, np.int64) for name in names}
    inputs[token_ids] = np.random.default_rng(0).integers(0, lookups[token_ids], shape)
    return inputs


def smoothing_factors(channel_range: Array, matrices: list[Array]) -> Array:
    """The divisor of each channel before it is quantised: input range against weight range, geometric mean 1."""
    weight_range = np.max([np.abs(matrix).max(1) for matrix in matrices], axis=0)
    inputs, columns = (np.log(np.maximum(values, 1e-5)) for values in (channel_range, weight_range))
    logs = SMOOTHING_EXPONENT * inputs - (1 - SMOOTHING_EXPONENT) * columns
    factors: Array = np.exp(logs - logs.mean()).astype(np.float32)
    return factors


def quantize_matrix(matrix: Array, axis: int) -> tuple[Array, Array]:
    """int8 values and the fp32 scale of each slice along `axis`, which the scales keep with length 1."""
    scales = np.maximum(np.abs(matrix).max(axis, keepdims=True), TINY) / INT8_LIMIT
    return np.rint(matrix / scales).astype(np.int8), scales.astype(np.float32)


@dataclass(frozen=True)
class _QuantizedInput:
    """A matmul's input: names of its uint8 values, of its scales [..., tokens, 1] and of their common zero point."""

    values: str
    scales: str
    zero_point: str


class _Int8Rewriter(GraphRewriter):
    """Walks the fp32 nodes in order and replaces matmuls and embeddings by their int8 form."""

    def __init__(self, graph: GraphProto, weights: dict[str, Array], factors: dict[str, Array]) -> None:
        super().__init__(graph)
        self._weights = weights
        self._factors = factors
        self._inputs: dict[str, _QuantizedInput] = {}
        self._zero_points: dict[tuple[str, int], str] = {}
        self._count = 0

    def rewrite(self) -> None:
        for node in self._graph.node:
            if _is_layer(node, self._weights):
                self._add_layer(node)
            elif _is_embedding(node, self._weights):
                table = self._weights[node.input[0]]
                values, scales = quantize_matrix(table, axis=1)
                rows = self._add("Gather", [self._constant("table", values), node.input[1]])
                row_scales = self._add("Gather", [self._constant("row_scales", scales), node.input[1]])
                self._add("DequantizeLinear", [rows, row_scales], node.output[0], axis=-1, block_size=table.shape[1])
            else:
                self._nodes.append(node)
        replace_nodes(self._graph, self._nodes)

    def _add(self, operator: str, inputs: list[str], output: str = "", domain: str = "", **attributes: Any) -> str:
        return super()._add(operator, inputs, output or self._name(operator), domain, **attributes)

    def _constant(self, stem: str, value: npt.ArrayLike) -> str:
        return super()._constant(self._name(stem), value)

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"int8/{stem}_{self._count}"

    def _add_layer(self, node: NodeProto) -> None:
        source = node.input[0]
        matrix = self._weights[node.input[1]]
        if source not in self._inputs:
            self._inputs[source] = self._quantize_input(source, len(matrix))
        quantized = self._inputs[source]
        if source in self._factors:
            matrix = matrix * self._factors[source][:, None]
        values, scales = quantize_matrix(matrix, axis=0)
        product = self._add(
            "MatMulIntegerToFloat",
            [
                quantized.values,
                self._constant("weight", values),
                self._constant("one", np.float32(1)),
                self._constant("column_scales", scales[0]),
                quantized.zero_point,
            ],
            domain=MICROSOFT,
        )
        self._add("Mul", [product, quantized.scales], node.output[0])

    def _quantize_input(self, source: str, width: int) -> _QuantizedInput:
        after_gelu = source in self._producers and self._producers[source].op_type in GELUS
        zero_point = GELU_ZERO_POINT if after_gelu else ZERO_POINT
        name = source
        if source in self._factors:
            name = self._add("Mul", [source, self._constant("smoothing", 1 / self._factors[source])])
        scales = self._gelu_scales(name) if after_gelu else self._symmetric_scales(name)
        values = self._add(
            "QuantizeLinear",
            [name, scales, self._zero_points_of(source, scales, zero_point)],
            axis=-1,
            block_size=width,
        )
        return _QuantizedInput(values, scales, self._constant("zero_point", np.uint8(zero_point)))

    def _symmetric_scales(self, name: str) -> str:
        last = self._constant("last_axis", np.array([-1]))
        highest = self._add("ReduceMax", [name, last])
        lowest = self._add("Neg", [self._add("ReduceMin", [name, last])])
        largest = self._add("Max", [highest, lowest, self._constant("tiny", np.float32(TINY))])
        return self._add("Mul", [largest, self._constant("step", np.float32(1 / INT8_LIMIT))])

    def _gelu_scales(self, name: str) -> str:
        highest = self._add("ReduceMax", [name, self._constant("last_axis", np.array([-1]))])
        scales = self._add("Mul", [highest, self._constant("step", np.float32(1 / (255 - GELU_ZERO_POINT)))])
        smallest = np.float32(-GELU_MINIMUM / GELU_ZERO_POINT)
        return self._add("Max", [scales, self._constant("smallest_scale", smallest)])

    def _zero_points_of(self, source: str, scales: str, zero_point: int) -> str:
        """A zero point for each scale, as QuantizeLinear requires. Tensors with the same tokens share them."""
        while source in self._producers and self._producers[source].op_type in KEEPS_TOKENS:
            source = self._producers[source].input[0]
        key = (source, zero_point)
        if key not in self._zero_points:
            value = helper.make_tensor("value", TensorProto.UINT8, [1], [zero_point])
            self._zero_points[key] = self._add("ConstantOfShape", [self._add("Shape", [scales])], value=value)
        return self._zero_points[key]
