"""ONNX Runtime on a CUDA device: sessions whose inputs and outputs stay there, in a few padded shapes.

A fall back to the CPU is refused, and the end of memory reported. The provider options keep fp32 where fp16 is not
enough: sums of layer norms, and fp32 graphs without TF32.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_core.inference import onnx_backend
from turnscore_core.inference.devices import Device

Rounding = Callable[[str, int], int]  # the size that an axis of that name and size is padded to

KEPT_SHAPES = 256  # shapes whose buffers a thread keeps; 4,096 tokens of three int64 inputs take 100 kB


@dataclass(frozen=True, slots=True)
class _BoundShape:
    """One padded shape: its buffers here and on the device, and the binding of both."""

    staged: Mapping[str, onnx_backend.Array]
    inputs: Mapping[str, Any]
    binding: Any


class BoundSession:
    """Runs one ONNX Runtime session by I/O binding. Safe in threads."""

    def __init__(self, session: Any, device: str, index: int, rounding: Rounding) -> None:
        """`device` is ONNX Runtime's word, `cuda` or `cpu`."""
        self._runtime = onnx_backend.load_onnxruntime()
        self._session = session
        self._place = (device, index)
        self._rounding = rounding
        self._own = threading.local()
        self.inputs, self.outputs = onnx_backend.describe_tensors(session)

    def run(self, feeds: Mapping[str, onnx_backend.Array]) -> dict[str, onnx_backend.Array]:
        """Runs one batch of the graph's inputs; the outputs have the sizes of the inputs as given."""
        sizes = self._measure(feeds)
        padded = {axis: self._rounding(axis, size) for axis, size in sizes.items()}
        shape = self._shape(padded)
        for tensor in self.inputs:
            staged = shape.staged[tensor.name]
            _fill(staged, feeds[tensor.name])
            shape.inputs[tensor.name].update_inplace(staged)
        self._session.run_with_iobinding(shape.binding)
        return {
            tensor.name: _cut(value.numpy(), tensor, sizes)
            for tensor, value in zip(self.outputs, shape.binding.get_outputs(), strict=True)
        }

    def _measure(self, feeds: Mapping[str, onnx_backend.Array]) -> dict[str, int]:
        """The size of each named axis. Raises ValueError where two inputs disagree."""
        sizes: dict[str, int] = {}
        for tensor in self.inputs:
            for axis, size in zip(tensor.shape, feeds[tensor.name].shape, strict=True):
                if isinstance(axis, str) and sizes.setdefault(axis, size) != size:
                    raise ValueError(f"input {tensor.name} has {size} {axis}, another has {sizes[axis]}")
        return sizes

    def _shape(self, padded: Mapping[str, int]) -> _BoundShape:
        """The buffers of this thread for that shape; the longest unused make room."""
        shapes: OrderedDict[tuple[int, ...], _BoundShape] = self._own.__dict__.setdefault("shapes", OrderedDict())
        key = tuple(padded.values())
        if key not in shapes:
            binding = self._session.io_binding()
            staged, inputs = {}, {}
            for tensor in self.inputs:
                dimensions = _dimensions(tensor, padded)
                staged[tensor.name] = np.zeros(dimensions, onnx_backend.NUMPY_TYPES[tensor.dtype])
                inputs[tensor.name] = self._buffer(dimensions, tensor)
                binding.bind_ortvalue_input(tensor.name, inputs[tensor.name])
            for tensor in self.outputs:
                dimensions = _dimensions(tensor, padded)
                if all(isinstance(each, int) for each in dimensions):
                    binding.bind_ortvalue_output(tensor.name, self._buffer(dimensions, tensor))
                else:  # an axis that no input has: the runtime finds its size and a place
                    binding.bind_output(tensor.name, "cpu")
            shapes[key] = _BoundShape(staged, inputs, binding)
        shapes.move_to_end(key)
        if len(shapes) > KEPT_SHAPES:
            shapes.popitem(last=False)
        return shapes[key]

    def _buffer(self, dimensions: tuple[int, ...], tensor: onnx_backend.Tensor) -> Any:
        return self._runtime.OrtValue.ortvalue_from_shape_and_type(
            dimensions, onnx_backend.NUMPY_TYPES[tensor.dtype], *self._place
        )


def _dimensions(tensor: onnx_backend.Tensor, padded: Mapping[str, int]) -> tuple[Any, ...]:
    """The padded shape; a name stays where no input has that axis."""
    return tuple(padded.get(axis, axis) if isinstance(axis, str) else axis for axis in tensor.shape)


def _fill(staged: onnx_backend.Array, values: onnx_backend.Array) -> None:
    """Puts the values into the corner; further columns are 0, further rows repeat the last."""
    rows = len(values)
    for axis in range(1, values.ndim):
        place = [slice(None)] * values.ndim
        place[axis] = slice(values.shape[axis], None)
        staged[tuple(place)] = 0
    staged[tuple(map(slice, values.shape))] = values
    staged[rows:] = staged[rows - 1]


def _cut(values: onnx_backend.Array, tensor: onnx_backend.Tensor, sizes: Mapping[str, int]) -> onnx_backend.Array:
    wanted = (sizes.get(axis) if isinstance(axis, str) else None for axis in tensor.shape)
    return np.array(values[tuple(map(slice, wanted))])  # a copy: the buffer is the next batch's


# The messages of ONNX Runtime's arena, the CUDA runtime, cuBLAS and cuDNN.
_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory|out of memory|OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|Available memory of \d+ is smaller than requested"
)


@dataclass(frozen=True)
class CudaOptions:
    memory_limit_bytes: int | None = None


class CudaBackend:
    def __init__(
        self, graph: Path, device: Device, options: CudaOptions, *, joint: Path | None = None, open_session: Any = None
    ) -> None:
        """Loads the graph, or both. `open_session` stands in for ONNX Runtime's class in tests.

        Raises RuntimeError where ONNX Runtime refuses the graph, DeviceError where it would run it elsewhere.
        """
        providers = provider_list(device, options)
        session = _open(graph, providers, open_session)
        wanted, opened = providers[0][0], list(session.get_providers())
        if wanted not in opened:
            raise onnx_backend.DeviceError(
                f"ONNX Runtime fell back to {', '.join(opened)} for {graph.name}, where {wanted} was asked for; its "
                "lines on stderr say why"
            )
        self._session = BoundSession(session, device.kind, device.index, onnx_backend.round_axis)
        self.inputs, self.outputs = self._session.inputs, self._session.outputs
        self._opened = (device, options, open_session)
        self.joint = None if joint is None else self.open_part(joint)

    def run(self, feeds: Mapping[str, onnx_backend.Array]) -> dict[str, onnx_backend.Array]:
        """Runs one batch, padded to a shape that was seen before if there is one. Raises OutOfMemoryError."""
        try:
            return self._session.run(feeds)
        except Exception as error:  # the runtime's classes share no base
            if _OUT_OF_MEMORY.search(str(error)):
                raise onnx_backend.OutOfMemoryError("the device has too little memory for this batch") from error
            raise

    def round_width(self, longest: int) -> int:
        """Four widths an octave."""
        return onnx_backend.round_up(longest, onnx_backend.TOKEN_STEP)

    def open_part(self, graph: Path) -> "CudaBackend":
        """On the same device: on the CPU, heads would take longer than the encoder does on a GPU."""
        device, options, open_session = self._opened
        return CudaBackend(graph, device, options, open_session=open_session)


def provider_list(device: Device, options: CudaOptions) -> list[tuple[str, dict[str, str]]]:
    """Providers with their options, the wanted one first, as `InferenceSession` takes them."""
    cuda = {
        "device_id": str(device.index),
        "arena_extend_strategy": "kSameAsRequested",  # doubling would take memory that no one asked for
        "use_tf32": "0",
        "enable_skip_layer_norm_strict_mode": "1",
    }
    if options.memory_limit_bytes is not None:
        cuda["gpu_mem_limit"] = str(options.memory_limit_bytes)
    return [(onnx_backend.CUDA_PROVIDER, cuda), ("CPUExecutionProvider", {})]


def _open(graph: Path, providers: list[tuple[str, dict[str, str]]], open_session: Any) -> Any:
    onnx_backend.load_cuda_libraries()
    runtime = onnx_backend.load_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # what stays on the CPU is arithmetic of shapes
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        # A fall-back would print to stdout and go on; without it the reason is raised.
        return (open_session or runtime.InferenceSession)(
            graph, sess_options=options, providers=providers, enable_fallback=0
        )
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        raise RuntimeError(f"ONNX Runtime cannot load {graph.name} on {providers[0][0]}: {error}") from error
