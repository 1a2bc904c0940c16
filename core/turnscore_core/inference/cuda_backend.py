"""ONNX Runtime on a CUDA device: opens sessions there, refuses a fall back to the CPU, reports when memory ends.

The provider options keep fp32 where fp16 is not enough: sums of layer norms, and fp32 graphs without TF32.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_core.inference.bound_session import BoundSession
from turnscore_core.inference.devices import Device
from turnscore_core.inference.onnx_backend import Array, OutOfMemoryError
from turnscore_core.inference.onnx_library import CUDA_PROVIDER, DeviceError, load_cuda_libraries, load_onnxruntime
from turnscore_core.inference.padding import TOKEN_STEP, round_axis, round_up

_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory|out of memory|OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|Available memory of \d+ is smaller than requested"
)
"""The messages of ONNX Runtime's arena, the CUDA runtime, cuBLAS and cuDNN."""


@dataclass(frozen=True)
class CudaOptions:
    """How a CUDA device is used."""

    memory_limit_bytes: int | None = None


class CudaBackend:
    """One graph on one CUDA device."""

    def __init__(self, graph: Path, device: Device, options: CudaOptions, *, open_session: Any = None) -> None:
        """Loads the graph. `open_session` stands in for ONNX Runtime's class in tests.

        Raises RuntimeError where ONNX Runtime refuses the graph, DeviceError where it would run it elsewhere.
        """
        providers = provider_list(device, options)
        session = _open(graph, providers, open_session)
        wanted, opened = providers[0][0], list(session.get_providers())
        if wanted not in opened:
            raise DeviceError(
                f"ONNX Runtime fell back to {', '.join(opened)} for {graph.name}, where {wanted} was asked for; its "
                "lines on stderr say why"
            )
        self._session = BoundSession(session, device.kind, device.index, round_axis)
        self.inputs, self.outputs = self._session.inputs, self._session.outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch, padded to a shape that was seen before if there is one. Raises OutOfMemoryError."""
        try:
            return self._session.run(feeds)
        except Exception as error:  # the runtime's classes share no base
            if _OUT_OF_MEMORY.search(str(error)):
                raise OutOfMemoryError("the device has too little memory for this batch") from error
            raise

    def round_width(self, longest: int) -> int:
        """Four widths an octave."""
        return round_up(longest, TOKEN_STEP)


def provider_list(device: Device, options: CudaOptions) -> list[tuple[str, dict[str, str]]]:
    """Providers with their options, the wanted one first, as `InferenceSession` takes them."""
    cuda = {
        "device_id": str(device.index),
        "arena_extend_strategy": "kSameAsRequested",  # doubling would take memory that nobody asked for
        "use_tf32": "0",
        "enable_skip_layer_norm_strict_mode": "1",
    }
    if options.memory_limit_bytes is not None:
        cuda["gpu_mem_limit"] = str(options.memory_limit_bytes)
    return [(CUDA_PROVIDER, cuda), ("CPUExecutionProvider", {})]


def _open(graph: Path, providers: list[tuple[str, dict[str, str]]], open_session: Any) -> Any:
    load_cuda_libraries()
    runtime = load_onnxruntime()
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
