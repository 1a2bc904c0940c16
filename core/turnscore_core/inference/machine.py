"""The machine as device choice sees it: runtime, driver, libraries, and whether a session really opens on a device."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from turnscore_core.inference.cuda_driver import CudaDriver, Gpu
from turnscore_core.inference.onnx_library import (
    CUDA_PROVIDER,
    OnnxBuild,
    describe_build,
    load_cuda_libraries,
    load_onnxruntime,
    missing_library,
)

# An Add of a vector with itself: the least that makes a provider start. A test compares it with what onnx writes.
PROBE_GRAPH = (
    b'\x08\x08:;\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x05probeZ\x10\n\x01x\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12'
    b"\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01nB\x04\n\x00\x10\x11"
)


@dataclass(frozen=True)
class CudaDevices:
    """What the driver says: the newest CUDA it runs, and the devices this process sees."""

    cuda_version: tuple[int, int]
    gpus: tuple[Gpu, ...]


class Machine(Protocol):
    """Everything that the choice of a device depends on; tests put their own in its place."""

    @property
    def build(self) -> OnnxBuild:
        """The installed runtime. Raises DeviceError where there is none."""

    def cuda_devices(self) -> CudaDevices:
        """Raises CudaDriverError where there is no driver that works."""

    def free_bytes(self, index: int) -> int:
        """Memory that no process has taken on that device. Raises CudaDriverError."""

    def missing_library(self) -> str | None:
        """A library that CUDA needs and that cannot be loaded."""

    def open_providers(self, index: int) -> tuple[str, ...]:
        """The providers that a small session asked for, and was given, on that device; raises what the runtime does."""


class ThisMachine:
    """The machine that the process runs on."""

    def __init__(self) -> None:
        self._opened: dict[int, tuple[str, ...]] = {}

    @cached_property
    def build(self) -> OnnxBuild:
        return describe_build()

    def cuda_devices(self) -> CudaDevices:
        driver = CudaDriver()
        return CudaDevices(driver.cuda_version, driver.gpus())

    def free_bytes(self, index: int) -> int:
        return CudaDriver().free_bytes(index)

    def missing_library(self) -> str | None:
        return missing_library()

    def open_providers(self, index: int) -> tuple[str, ...]:
        if index not in self._opened:
            load_cuda_libraries()
            session = load_onnxruntime().InferenceSession(
                PROBE_GRAPH, providers=[(CUDA_PROVIDER, {"device_id": str(index)})], enable_fallback=0
            )
            self._opened[index] = tuple(session.get_providers())
        return self._opened[index]
