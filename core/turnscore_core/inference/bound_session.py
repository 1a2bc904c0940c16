"""A session whose inputs and outputs stay on the device: a few padded shapes, each with buffers that are used again.

Axes are rounded up by their names in the graph. Rows, and whatever else stands first, are filled with the last real
one, so that nothing empty is computed; tokens are filled with 0, which masks hide. What was filled is cut off again.
Every thread has buffers of its own, so that one batch can be copied while another computes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnscore_core.inference.onnx_backend import Array, Tensor, describe_tensors
from turnscore_core.inference.onnx_library import load_onnxruntime

Rounding = Callable[[str, int], int]
"""The size that an axis of that name and size is padded to."""

KEPT_SHAPES = 256
"""Shapes whose buffers a thread keeps; 4,096 tokens of three int64 inputs take 100 kB. Chosen."""
_DTYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True, slots=True)
class _Shape:
    """One padded shape: its buffers here and on the device, and the binding of both."""

    staged: Mapping[str, Array]
    inputs: Mapping[str, Any]
    binding: Any


class BoundSession:
    """Runs one ONNX Runtime session by I/O binding. Safe in threads."""

    def __init__(self, session: Any, device: str, index: int, rounding: Rounding) -> None:
        """`device` is ONNX Runtime's word, `cuda` or `cpu`."""
        self._runtime = load_onnxruntime()
        self._session = session
        self._place = (device, index)
        self._rounding = rounding
        self._own = threading.local()
        self.inputs, self.outputs = describe_tensors(session)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
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

    def _measure(self, feeds: Mapping[str, Array]) -> dict[str, int]:
        """The size of each named axis. Raises ValueError where two inputs disagree."""
        sizes: dict[str, int] = {}
        for tensor in self.inputs:
            for axis, size in zip(tensor.shape, feeds[tensor.name].shape, strict=True):
                if isinstance(axis, str) and sizes.setdefault(axis, size) != size:
                    raise ValueError(f"input {tensor.name} has {size} {axis}, another has {sizes[axis]}")
        return sizes

    def _shape(self, padded: Mapping[str, int]) -> _Shape:
        """The buffers of this thread for that shape; the longest unused make room."""
        shapes: OrderedDict[tuple[int, ...], _Shape] = self._own.__dict__.setdefault("shapes", OrderedDict())
        key = tuple(padded.values())
        if key not in shapes:
            shapes[key] = self._allocate(padded)
        shapes.move_to_end(key)
        if len(shapes) > KEPT_SHAPES:
            shapes.popitem(last=False)
        return shapes[key]

    def _allocate(self, padded: Mapping[str, int]) -> _Shape:
        binding = self._session.io_binding()
        staged, inputs = {}, {}
        for tensor in self.inputs:
            dimensions = _dimensions(tensor, padded)
            staged[tensor.name] = np.zeros(dimensions, _DTYPES[tensor.dtype])
            inputs[tensor.name] = self._buffer(dimensions, tensor)
            binding.bind_ortvalue_input(tensor.name, inputs[tensor.name])
        for tensor in self.outputs:
            dimensions = _dimensions(tensor, padded)
            if all(isinstance(each, int) for each in dimensions):
                binding.bind_ortvalue_output(tensor.name, self._buffer(dimensions, tensor))
            else:  # an axis that no input has: the runtime finds its size and a place
                binding.bind_output(tensor.name, "cpu")
        return _Shape(staged, inputs, binding)

    def _buffer(self, dimensions: tuple[int, ...], tensor: Tensor) -> Any:
        return self._runtime.OrtValue.ortvalue_from_shape_and_type(dimensions, _DTYPES[tensor.dtype], *self._place)


def _dimensions(tensor: Tensor, padded: Mapping[str, int]) -> tuple[Any, ...]:
    """The padded shape; a name stays where no input has that axis."""
    return tuple(padded.get(axis, axis) if isinstance(axis, str) else axis for axis in tensor.shape)


def _fill(staged: Array, values: Array) -> None:
    """Puts the values into the corner; further columns are 0, further rows repeat the last."""
    rows = len(values)
    for axis in range(1, values.ndim):
        place = [slice(None)] * values.ndim
        place[axis] = slice(values.shape[axis], None)
        staged[tuple(place)] = 0
    staged[tuple(map(slice, values.shape))] = values
    staged[rows:] = staged[rows - 1]


def _cut(values: Array, tensor: Tensor, sizes: Mapping[str, int]) -> Array:
    wanted = (sizes.get(axis) if isinstance(axis, str) else None for axis in tensor.shape)
    return np.array(values[tuple(map(slice, wanted))])  # a copy: the buffer is the next batch's
