"""Devices: what CPUs and GPUs this process may compute on, best first, and why not on a better one.

Nothing falls back silently. CUDA_VISIBLE_DEVICES and MIG slices are the driver's business, so the numbers here are
those that ONNX Runtime uses.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from turnscore_core.inference.onnx_backend import (
    CUDA_PROVIDER,
    DeviceError,
    OnnxBuild,
    describe_build,
    load_cuda_libraries,
    load_onnxruntime,
    missing_library,
)

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cpus() -> int:
    """CPUs the process may keep busy, at least 1; a quota of 1.5 CPUs counts as 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def _cgroup_quota() -> float | None:
    """CPUs the cgroup grants, or None where it sets no limit."""
    for parts in (_words(_CGROUP_V2), _words(_CGROUP_V1_QUOTA) + _words(_CGROUP_V1_PERIOD)):
        if len(parts) == 2 and parts[0].isdecimal() and parts[1].isdecimal():
            return int(parts[0]) / int(parts[1])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


_NO_DEVICE = 100  # specified: CUDA_ERROR_NO_DEVICE
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76  # specified: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_NAME_BYTES = 256


class CudaDriverError(Exception):
    """There is no driver, or it refuses; the message has its words."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device that the process sees; `compute` is its compute capability."""

    index: int
    name: str
    memory_bytes: int
    compute: tuple[int, int]


class CudaDriver:
    """The driver's library, initialised. Keeps no context and takes no device memory."""

    def __init__(self, library: Any = None) -> None:
        """Raises CudaDriverError where the library is missing or cannot be initialised."""
        try:
            self._library = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaDriverError(str(error)) from None
        code = self._library.cuInit(0)
        self._has_devices = code != _NO_DEVICE
        if code and self._has_devices:
            raise CudaDriverError(self._describe("cuInit", code))

    @property
    def cuda_version(self) -> tuple[int, int]:
        """The newest CUDA that the driver can run."""
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return version.value // 1000, version.value % 1000 // 10

    def gpus(self) -> tuple[Gpu, ...]:
        if not self._has_devices:
            return ()
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return tuple(self._describe_gpu(index) for index in range(count.value))

    def free_bytes(self, index: int) -> int:
        device, context, popped = self._device(index), ctypes.c_void_p(), ctypes.c_void_p()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        # The primary context is the one that ONNX Runtime computes in: nothing is created where a session is open.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            finally:
                self._call("cuCtxPopCurrent_v2", ctypes.byref(popped))
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", device)
        return free.value

    def _describe_gpu(self, index: int) -> Gpu:
        device, name, memory = self._device(index), ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
        self._call("cuDeviceGetName", name, _NAME_BYTES, device)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        compute = (self._attribute(_COMPUTE_MAJOR, device), self._attribute(_COMPUTE_MINOR, device))
        return Gpu(index=index, name=name.value.decode(errors="replace"), memory_bytes=memory.value, compute=compute)

    def _device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        return device

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaDriverError(self._describe(name, code))

    def _describe(self, name: str, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        return f"{name} failed with error {code} ({(text.value or b'unknown').decode(errors='replace')})"


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


class Machine:
    """What the choice of a device depends on: runtime, driver, libraries, and whether a session opens on a device."""

    def __init__(self) -> None:
        self._opened: dict[int, tuple[str, ...]] = {}

    @cached_property
    def build(self) -> OnnxBuild:
        """The installed runtime. Raises DeviceError where there is none."""
        return describe_build()

    def cuda_devices(self) -> CudaDevices:
        """Raises CudaDriverError where there is no driver that works."""
        driver = CudaDriver()
        return CudaDevices(driver.cuda_version, driver.gpus())

    def free_bytes(self, index: int) -> int:
        """Memory that no process has taken on that device. Raises CudaDriverError."""
        return CudaDriver().free_bytes(index)

    def missing_library(self) -> str | None:
        """A library that CUDA needs and that cannot be loaded."""
        return missing_library()

    def open_providers(self, index: int) -> tuple[str, ...]:
        """The providers that a small session asked for, and was given, on that device; raises what the runtime does."""
        if index not in self._opened:
            load_cuda_libraries()
            session = load_onnxruntime().InferenceSession(
                PROBE_GRAPH, providers=[(CUDA_PROVIDER, {"device_id": str(index)})], enable_fallback=0
            )
            self._opened[index] = tuple(session.get_providers())
        return self._opened[index]


AUTO = "auto"
_INSTALL_LIBRARIES = "install the extra `gpu`, which brings the CUDA and cuDNN wheels"


@dataclass(frozen=True)
class Device:
    kind: Literal["cpu", "cuda"]
    index: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"cuda:{self.index}"


CPU = Device("cpu")


@dataclass(frozen=True)
class DeviceChoice:
    """The devices that a graph may run on, best first; `note` says why a better one is not among them."""

    devices: tuple[Device, ...]
    note: str = ""

    def __str__(self) -> str:
        return " or ".join(map(str, self.devices))


def choose_devices(asked: str, machine: Machine, *, worker: int = 0) -> DeviceChoice:
    """The devices for worker number `worker` (from 0), of what the setting `runtime.device` may say.

    `auto` is CUDA where it works, else the CPU. Raises DeviceError, with the reason and the fix, where a device that
    was asked for by name cannot be used, and whatever was asked for where there is no runtime, or two.
    """
    build = machine.build
    _refuse_two(build)
    if asked == "cpu":
        return DeviceChoice((CPU,))
    try:
        device = _find_cuda(asked, build, machine, worker)
    except DeviceError as error:
        if asked != AUTO:
            raise
        return DeviceChoice((CPU,), str(error))
    return DeviceChoice((device, CPU) if asked == AUTO else (device,))


def _find_cuda(asked: str, build: OnnxBuild, machine: Machine, worker: int) -> Device:
    """The worker's CUDA device, checked to work."""
    _check_build(build)
    found = _read_driver(build, machine)
    wanted = list(range(len(found.gpus))) if asked in (AUTO, "cuda") else parse_indices(asked)
    index = wanted[worker % len(wanted)]
    if index >= len(found.gpus):
        names = ", ".join(f"cuda:{gpu.index} {gpu.name}" for gpu in found.gpus)
        raise DeviceError(f"there is no cuda:{index}; this process sees {names}")
    _try_session(index, build, machine)
    return Device("cuda", index)


def parse_indices(asked: str) -> list[int]:
    """The numbers in `cuda:0,cuda:1`."""
    return [int(each.partition(":")[2]) for each in asked.split(",")]


def count_sharing_workers(asked: str, workers: int, gpus: int) -> int:
    """At most how many worker processes share a device; `gpus` are those this process sees."""
    devices = len(set(parse_indices(asked))) if ":" in asked else gpus
    return -(-workers // max(1, devices))


def _refuse_two(build: OnnxBuild) -> None:
    """Two packages that write the same files: which of them works, if any, is an accident."""
    if {"onnxruntime", "onnxruntime-gpu"} <= set(build.packages):
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: pip uninstall -y onnxruntime "
            "onnxruntime-gpu, then install exactly one of the extras `cpu` and `gpu`"
        )


def _check_build(build: OnnxBuild) -> None:
    if build.has_cuda:
        return
    raise DeviceError(
        f"the installed ONNX Runtime {build.version} is a CPU build; CUDA needs an environment with turnscore's extra "
        "`gpu` instead of `cpu` (in a checkout: pip install ./clients ./core '.[gpu]'), or the CUDA image"
    )


def _read_driver(build: OnnxBuild, machine: Machine) -> CudaDevices:
    try:
        found = machine.cuda_devices()
    except CudaDriverError as error:
        raise DeviceError(
            f"there is no working NVIDIA driver ({error}): install or restart it; a container needs the NVIDIA "
            "Container Toolkit and `--gpus all`"
        ) from None
    if build.cuda_version is not None and found.cuda_version < (build.cuda_version[0], 0):
        raise DeviceError(
            f"the NVIDIA driver runs CUDA up to {'.'.join(map(str, found.cuda_version))}, ONNX Runtime {build.version} "
            f"needs CUDA {build.cuda_version[0]}: install a newer driver (CUDA 13 needs 580 or later), or "
            "onnxruntime-gpu 1.26 or earlier for CUDA 12"
        )
    if not found.gpus:
        raise DeviceError(
            "the NVIDIA driver shows this process no device: check nvidia-smi, CUDA_VISIBLE_DEVICES and the "
            "container's `--gpus`"
        )
    return found


def _try_session(index: int, build: OnnxBuild, machine: Machine) -> None:
    """A CUDA that cannot start is left out by ONNX Runtime with a line in its log, so only a session shows it."""
    missing = machine.missing_library()
    if missing is not None:
        raise DeviceError(f"{CUDA_PROVIDER} needs {missing}, which cannot be loaded: {_INSTALL_LIBRARIES}")
    try:
        opened: Sequence[str] = machine.open_providers(index)
    except Exception as error:  # the runtime's classes share no base
        raise DeviceError(f"cuda:{index} does not start: {' '.join(str(error).split())}") from error
    if CUDA_PROVIDER not in opened:
        raise DeviceError(
            f"ONNX Runtime {build.version} fell back to {', '.join(opened)} where {CUDA_PROVIDER} was asked for; "
            "its lines on stderr say why"
        )
