"""The NVIDIA driver, asked through its own library: which devices this process sees and how much memory is free.

CUDA_VISIBLE_DEVICES and MIG slices are the driver's business, so the numbers here are those that ONNX Runtime uses.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

LIBRARY = "libcuda.so.1"
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
            self._library = library or ctypes.CDLL(LIBRARY)
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
        """The devices this process sees, in the order of their numbers."""
        if not self._has_devices:
            return ()
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return tuple(self._describe_gpu(index) for index in range(count.value))

    def free_bytes(self, index: int) -> int:
        """Memory that no process has taken on that device."""
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
