"""The runtime library: loads it and reports what was installed. Refuses with the extra that installs it."""

import contextlib
import ctypes
import io
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

CUDA_PROVIDER = "CUDAExecutionProvider"
_MISSING_LIBRARY = re.compile(r"^(\S+\.so[.\d]*): cannot open shared object file")


class DeviceError(Exception):
    """What was configured cannot compute here; the message has the reason and what to do about it."""


@dataclass(frozen=True, kw_only=True)
class OnnxBuild:
    """The installed runtime: its version, the packages that bring it, what it can run on, and the CUDA it is for."""

    version: str
    packages: tuple[str, ...]
    providers: tuple[str, ...]
    cuda_version: tuple[int, int] | None

    @property
    def has_cuda(self) -> bool:
        """Whether the build can run on CUDA, libraries and hardware permitting."""
        return CUDA_PROVIDER in self.providers


def load_onnxruntime() -> Any:
    """The module. Raises DeviceError, which names the extras that install it, where it is missing or broken."""
    try:
        module = import_module("onnxruntime")
        reason = "" if hasattr(module, "InferenceSession") else "files of it are missing"
    except ImportError as error:
        if error.name == "onnxruntime":
            raise DeviceError(
                "ONNX Runtime is not installed: install the extra `cpu` (pip install ./clients '.[cpu]' in a checkout "
                "of turnscore), or on a CUDA machine the extra `gpu`"
            ) from None
        reason = str(error)
    if reason:
        raise DeviceError(
            f"ONNX Runtime cannot be imported ({reason}): remove onnxruntime and onnxruntime-gpu, "
            "then install exactly one of the extras `cpu` and `gpu`"
        )
    return module


def describe_build() -> OnnxBuild:
    """The installed packages. Raises DeviceError as `load_onnxruntime` does."""
    module = load_onnxruntime()
    found = {(each.metadata["Name"] or "").lower().replace("_", "-") for each in distributions()}
    return OnnxBuild(
        version=module.__version__,
        packages=tuple(sorted(name for name in found if name.startswith("onnxruntime"))),
        providers=tuple(module.get_available_providers()),
        cuda_version=_cuda_version(),
    )


def _cuda_version() -> tuple[int, int] | None:
    """Written into the package when it is built; CPU builds have none."""
    try:
        info = import_module("onnxruntime.capi.build_and_package_info")
    except ImportError:
        return None
    major, _, rest = str(getattr(info, "cuda_version", "")).partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor or 0)) if major.isdecimal() else None


@cache
def load_cuda_libraries() -> None:
    """Loads the CUDA libraries that pip installed, which the runtime does not find by itself."""
    preload = getattr(load_onnxruntime(), "preload_dlls", None)
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it misses; `missing_library` says it better
            preload()


def missing_library() -> str | None:
    """The first shared library that the runtime's CUDA provider needs and the system lacks, such as `libcudnn.so.9`."""
    load_cuda_libraries()
    path = Path(load_onnxruntime().__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        found = _MISSING_LIBRARY.match(str(error))
        return found[1] if found else None
    return None
