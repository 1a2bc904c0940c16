"""Devices: which ones a process may compute on, best first, and why not on a better one. Never falls back silently."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from turnscore_core.inference.cuda_driver import CudaDriverError
from turnscore_core.inference.machine import CudaDevices, Machine
from turnscore_core.inference.onnx_library import CUDA_PROVIDER, DeviceError, OnnxBuild

AUTO = "auto"
_INSTALL_GPU = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install ./clients '.[gpu]'"
_INSTALL_LIBRARIES = "install the extra `gpu`, which brings the CUDA and cuDNN wheels (pip install ./clients '.[gpu]')"


@dataclass(frozen=True)
class Device:
    """Where a graph computes."""

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
    """The worker's CUDA device, proved to work."""
    _check_build(build)
    found = _read_driver(build, machine)
    wanted = list(range(len(found.gpus))) if asked in (AUTO, "cuda") else parse_indices(asked)
    index = wanted[worker % len(wanted)]
    if index >= len(found.gpus):
        names = ", ".join(f"cuda:{gpu.index} {gpu.name}" for gpu in found.gpus)
        raise DeviceError(f"there is no cuda:{index}; this process sees {names}")
    _prove(index, build, machine)
    return Device("cuda", index)


def parse_indices(asked: str) -> list[int]:
    """The numbers in `cuda:0,cuda:1`."""
    return [int(each.partition(":")[2]) for each in asked.split(",")]


def count_workers_beside(asked: str, workers: int, gpus: int) -> int:
    """How many of the worker processes share a device, at most; `gpus` are those this process sees."""
    devices = len(set(parse_indices(asked))) if ":" in asked else gpus
    return -(-workers // max(1, devices))


def _refuse_two(build: OnnxBuild) -> None:
    """Two packages that write the same files: which of them works, and whether at all, is an accident."""
    if {"onnxruntime", "onnxruntime-gpu"} <= set(build.packages):
        raise DeviceError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: pip uninstall -y onnxruntime "
            "onnxruntime-gpu, then install exactly one of the extras `cpu` and `gpu`"
        )


def _check_build(build: OnnxBuild) -> None:
    if build.has_cuda:
        return
    raise DeviceError(f"the installed ONNX Runtime {build.version} is a CPU build: {_INSTALL_GPU}")


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
            f"the NVIDIA driver runs CUDA up to {_dotted(found.cuda_version)}, ONNX Runtime {build.version} needs "
            f"CUDA {build.cuda_version[0]}: install a newer driver (CUDA 13 needs 580 or later), or "
            "onnxruntime-gpu 1.26 or earlier for CUDA 12"
        )
    if not found.gpus:
        raise DeviceError(
            "the NVIDIA driver shows this process no device: check nvidia-smi, CUDA_VISIBLE_DEVICES and the "
            "container's `--gpus`"
        )
    return found


def _prove(index: int, build: OnnxBuild, machine: Machine) -> None:
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


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
