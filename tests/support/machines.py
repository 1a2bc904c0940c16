"""A machine that was made up: any runtime, any driver, any number of devices, and whatever fails on them."""

from dataclasses import dataclass, field

from turnscore_core.inference.devices import CudaDevices, CudaDriverError, Gpu
from turnscore_core.inference.onnx_backend import CUDA_PROVIDER, DeviceError, OnnxBuild

CPU_BUILD = OnnxBuild(
    version="1.31.1", packages=("onnxruntime",), providers=("CPUExecutionProvider",), cuda_version=None
)
GPU_BUILD = OnnxBuild(
    version="1.31.1",
    packages=("onnxruntime-gpu",),
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    cuda_version=(13, 0),
)


@dataclass
class FakeMachine:
    """By default a machine with two devices on which everything works."""

    installed: OnnxBuild | DeviceError = GPU_BUILD
    driver: str | None = None
    """What the driver's library says when it cannot be used; None where it can."""
    driver_cuda: tuple[int, int] = (13, 1)
    devices: int = 2
    missing: str | None = None
    """The library that CUDA needs and that cannot be loaded."""
    opening: str | None = None
    """What the runtime raises when a session is opened."""
    falls_back: bool = False
    free: int | None = 20 << 30
    opened: list[int] = field(default_factory=list)

    @property
    def build(self) -> OnnxBuild:
        if isinstance(self.installed, DeviceError):
            raise self.installed
        return self.installed

    def cuda_devices(self) -> CudaDevices:
        if self.driver is not None:
            raise CudaDriverError(self.driver)
        gpus = tuple(
            Gpu(index=index, name="Made-Up 9000", memory_bytes=24 << 30, compute=(9, 0))
            for index in range(self.devices)
        )
        return CudaDevices(self.driver_cuda, gpus)

    def free_bytes(self, index: int) -> int:
        if self.free is None:
            raise CudaDriverError("the driver does not say")
        return self.free

    def missing_library(self) -> str | None:
        return self.missing

    def open_providers(self, index: int) -> tuple[str, ...]:
        self.opened.append(index)
        if self.opening is not None:
            raise RuntimeError(self.opening)
        own = () if self.falls_back else (CUDA_PROVIDER,)
        return (*own, "CPUExecutionProvider")
