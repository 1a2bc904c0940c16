"""ONNX Runtime behind one small interface: named arrays in, named arrays out. `run` may be called from any thread."""

import contextlib
import ctypes
import hashlib
import io
import platform
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

# Widths are rounded up to multiples of this, so that the runtime sees few shapes. Measured: with 4, fp32 sums are
# grouped by the width, and a score of int8 FED changed by 0.0004 with its neighbours.
WIDTH_STEP = 8


def padded_width(longest: int) -> int:
    """The width of a row that has to hold `longest` tokens."""
    return -(-longest // WIDTH_STEP) * WIDTH_STEP


def pad_rows(
    rows: Sequence[Sequence[int]], pad_id: int, round_width: Callable[[int], int] = padded_width
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both int64 [rows, tokens]; the mask is 1 on real tokens."""
    width = round_width(max(len(row) for row in rows))
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


STEPS_PER_OCTAVE = 4  # sizes between one power of two and the next. At most a quarter is padding, a tenth on average
TOKEN_STEP = 8  # widths are multiples of this: fp16 kernels want it, and `packing` makes no others. Specified

# Axes whose elements know nothing of each other, so that more of them change nothing.
ROW_AXES = frozenset({"rows", "pairs", "texts", "text_tokens", "branches", "predictors", "targets"})


def round_up(size: int, least: int = 1) -> int:
    """The next of `least` times 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ..."""
    units = -(-size // least)
    step = max(1, (1 << (units - 1).bit_length()) // 2 // STEPS_PER_OCTAVE) if units > 1 else 1
    return -(-units // step) * step * least


def round_axis(axis: str, size: int) -> int:
    """The size that an axis of that name is padded to; axes that may not be padded keep theirs."""
    if axis in ROW_AXES:
        return round_up(size)
    # A mask hides this axis's padding. FED's widths have no step: its places count padding.
    return round_up(size, TOKEN_STEP) if axis == "tokens" else size


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
                "ONNX Runtime is not installed: install the extra `cpu` of turnscore, or on a CUDA machine `gpu` "
                "(turnscore[cpu]; in a checkout: pip install ./clients ./core '.[cpu]')"
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


# Linux's words for the instructions that add products of bytes in 32 bits.
_WIDE_SUMS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def int8_saturates(machine: str | None = None, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether products of uint8 and int8 may be added in 16 bits here, where they saturate.

    That is so on x86 with AVX2 or AVX-512 but without VNNI; also said where the CPU's features cannot be read.
    """
    if (machine or platform.machine()) not in ("x86_64", "AMD64"):
        return False
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return _WIDE_SUMS.isdisjoint(flags)


Array = NDArray[Any]

# What ONNX Runtime's words for types are in numpy.
NUMPY_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True)
class Tensor:
    """Name, type (ONNX Runtime's word, `tensor(int64)`) and shape of an input or output."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class OutOfMemoryError(Exception):
    """The device has too little memory for a batch: a smaller one may do."""


class Backend(Protocol):
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def joint(self) -> "Backend | None":
        """Of a graph that is cut in two, the second one (GraphSpec of turnscore_models.manifest)."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch. Raises OutOfMemoryError, and whatever else the runtime raises."""

    def round_width(self, longest: int) -> int:
        """The width to pad rows to that have to hold `longest` tokens, for a runtime that wants few shapes."""

    def open_part(self, graph: Path) -> "Backend":
        """Another graph of the same bundle, run as this one is. Raises as the constructor does."""


class OnnxBackend:
    """One graph in ONNX Runtime on the CPU: a session for busy times, and one with more threads for idle ones."""

    def __init__(
        self,
        graph: Path,
        *,
        threads: int,
        wide_threads: int | None = None,
        running: list[None] | None = None,
        joint: Path | None = None,
    ) -> None:
        """Loads the graph, or both. Raises RuntimeError where ONNX Runtime refuses it, DeviceError where there is none.

        A batch gets `threads`; one that finds no other in `running` gets `wide_threads`, where that is given. That list
        has an entry for each batch that runs in this process, over all graphs.
        """
        self._narrow = open_session(graph, threads)
        self._wide = open_session(graph, wide_threads) if wide_threads else self._narrow
        self._running = [] if running is None else running
        self._threads = (threads, wide_threads)
        self.inputs, self.outputs = describe_tensors(self._narrow)
        self._names = [output.name for output in self.outputs]
        self.joint = None if joint is None else self.open_part(joint)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch; the arrays' first dimensions are the graph's own. Releases the GIL."""
        self._running.append(None)  # lists may be changed from any thread
        try:
            session = self._wide if len(self._running) == 1 else self._narrow
            found = session.run(self._names, dict(feeds))
        finally:
            self._running.pop()
        return dict(zip(self._names, found, strict=True))

    round_width = staticmethod(padded_width)  # a CPU takes any shape

    def open_part(self, graph: Path) -> "OnnxBackend":
        """With as many threads, and among the same running batches."""
        threads, wide_threads = self._threads
        return OnnxBackend(graph, threads=threads, wide_threads=wide_threads, running=self._running)


# By SHA-256 of the graph and number of threads, while a scorer uses it: scorers on one encoder share its weights.
_SESSIONS: WeakValueDictionary[tuple[bytes, int], Any] = WeakValueDictionary()
_OPENING: defaultdict[tuple[bytes, int], Lock] = defaultdict(Lock)


def open_session(graph: Path, threads: int) -> Any:
    """ONNX Runtime's session of the graph on the CPU, as it is served; one for all whose graphs are equal.

    Raises RuntimeError where it does not load.
    """
    try:
        content = graph.read_bytes()
    except OSError as error:
        raise RuntimeError(f"{graph.name} cannot be read: {error.strerror or error}") from error
    # in every ONNX file whose weights lie in another one, of which its hash says nothing
    is_external, key = b"location" in content, (hashlib.sha256(content).digest(), threads)
    del content  # the runtime reads the file itself, and needs its memory
    if is_external:
        return _create_session(graph, threads)
    with _OPENING[key]:  # two that are loaded at once are one session, too
        session = _SESSIONS.get(key)
        if session is None:
            session = _SESSIONS[key] = _create_session(graph, threads)
    return session


def _create_session(graph: Path, threads: int) -> Any:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads of the pool would otherwise spin and take the CPU from the event loop and the tokenizer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # On CPUs with AVX2 or AVX-512 but without VNNI the products of uint8 and int8 are added in 16 bits, and saturate:
    # engagement was off by up to 0.037 (Haswell as QEMU emulates it), and is the same to the last bit with this. Where
    # nothing saturates it would only cost: 2.5 times the CPU with AMX (2 cores of a Xeon, 2026-11-22).
    options.add_session_config_entry("session.x64quantprecision", "1" if int8_saturates() else "0")
    # A memory plan is kept for every shape ever seen: measured, it only adds memory (311 MB against 269 MB after 300
    # shapes of MiniLM) and no speed. The arena stays: without it each token costs a quarter more.
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, sess_options=options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        raise RuntimeError(f"ONNX Runtime cannot load {graph.name}: {error}") from error


def describe_tensors(session: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    inputs, outputs = (
        tuple(Tensor(node.name, node.type, tuple(node.shape)) for node in nodes)
        for nodes in (session.get_inputs(), session.get_outputs())
    )
    return inputs, outputs
