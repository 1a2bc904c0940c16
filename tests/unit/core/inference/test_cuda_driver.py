"""The driver's library as its functions are called; the library is made up."""

import ctypes
from typing import Any

import pytest
from turnscore_core.inference.devices import CudaDriver, CudaDriverError, Gpu

GIGABYTE = 1 << 30
COMPUTE = {75: 9, 76: 0}


class FakeLibrary:
    """Two devices; notes contexts that were taken and given back. Fails where it is told to."""

    def __init__(self, **codes: int) -> None:
        self._codes = codes
        self.retained: list[int] = []
        self.pushed = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._codes.get(name) or getattr(self, f"call_{name}")(*arguments) or 0

    def call_cuInit(self, flags: int) -> None:
        assert flags == 0

    def call_cuDriverGetVersion(self, version: Any) -> None:
        version._obj.value = 13010

    def call_cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = 2

    def call_cuDeviceGet(self, device: Any, index: int) -> None:
        device._obj.value = 100 + index

    def call_cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> None:
        assert size == len(name)
        name.value = f"Made-Up {device.value}".encode()

    def call_cuDeviceTotalMem_v2(self, memory: Any, device: ctypes.c_int) -> None:
        memory._obj.value = (device.value - 99) * 24 * GIGABYTE

    def call_cuDeviceGetAttribute(self, value: Any, number: int, device: ctypes.c_int) -> None:
        value._obj.value = COMPUTE[number]

    def call_cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> None:
        context._obj.value = 4711
        self.retained.append(device.value)

    def call_cuDevicePrimaryCtxRelease_v2(self, device: ctypes.c_int) -> None:
        self.retained.remove(device.value)

    def call_cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> None:
        assert context.value == 4711
        self.pushed += 1

    def call_cuCtxPopCurrent_v2(self, context: Any) -> None:
        self.pushed -= 1

    def call_cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        assert self.pushed == 1
        free._obj.value, total._obj.value = 20 * GIGABYTE, 24 * GIGABYTE

    def call_cuGetErrorString(self, code: int, text: Any) -> None:
        text._obj.value = b"no such thing" if code == 999 else None


def test_devices_are_told_with_name_memory_and_compute_capability():
    driver = CudaDriver(FakeLibrary())
    assert driver.cuda_version == (13, 1)
    assert driver.gpus() == (
        Gpu(index=0, name="Made-Up 100", memory_bytes=24 * GIGABYTE, compute=(9, 0)),
        Gpu(index=1, name="Made-Up 101", memory_bytes=48 * GIGABYTE, compute=(9, 0)),
    )


@pytest.mark.parametrize("failing", [{}, {"cuMemGetInfo_v2": 999}])
def test_free_memory_leaves_no_context_behind(failing: dict[str, int]):
    library = FakeLibrary(**failing)
    if failing:
        with pytest.raises(CudaDriverError, match=r"cuMemGetInfo_v2 failed with error 999 \(no such thing\)"):
            CudaDriver(library).free_bytes(1)
    else:
        assert CudaDriver(library).free_bytes(1) == 20 * GIGABYTE
    assert (library.retained, library.pushed) == ([], 0)


def test_a_driver_without_devices_is_no_error():
    assert CudaDriver(FakeLibrary(cuInit=100)).gpus() == ()


def test_a_driver_that_does_not_start_is_refused_with_its_words():
    with pytest.raises(CudaDriverError, match=r"cuInit failed with error 803 \(unknown\)"):
        CudaDriver(FakeLibrary(cuInit=803))


def test_a_missing_driver_is_told_by_its_librarys_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("turnscore_core.inference.devices.LIBRARY", "libnosuchdriver.so.1")
    with pytest.raises(CudaDriverError, match=r"libnosuchdriver\.so\.1: cannot open"):
        CudaDriver()
