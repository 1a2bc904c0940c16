"""Which devices a process may compute on, and why not on a better one."""

import logging
import re
from contextlib import nullcontext

import pytest
from support.fakes import CPU_BUILD, GPU_BUILD, FakeMachine
from turnscore_core.inference import devices as cpu_budget
from turnscore_core.inference.devices import (
    CPU,
    CudaDriver,
    CudaDriverError,
    Device,
    choose_devices,
    count_sharing_workers,
)
from turnscore_core.inference.onnx_backend import DeviceError, OnnxBuild
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_models.bundle import starter_bundles
from turnscore_service.settings.service import RuntimeSettings


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_budget, "_CGROUP_V2", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu_budget, "_CGROUP_V1_QUOTA", tmp_path / "quota")
    monkeypatch.setattr(cpu_budget, "_CGROUP_V1_PERIOD", tmp_path / "period")
    monkeypatch.setattr(cpu_budget.os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


@pytest.mark.parametrize(("quota", "cpus"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8)])
def test_a_cgroup_v2_quota_bounds_the_cpus(cgroup, quota, cpus):
    (cgroup / "cpu.max").write_text(quota)
    assert cpu_budget.usable_cpus() == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("300000", 3), ("-1", 8)])
def test_a_cgroup_v1_quota_bounds_the_cpus(cgroup, quota, cpus):
    (cgroup / "quota").write_text(quota)
    (cgroup / "period").write_text("100000")
    assert cpu_budget.usable_cpus() == cpus


class Library:
    """Notes what is called of it, and returns 0 but where it is told another code."""

    def __init__(self, **codes):
        self._codes = codes
        self.called = []

    def __getattr__(self, name):
        return lambda *_: self.called.append(name) or self._codes.get(name, 0)


@pytest.mark.parametrize("code", [0, 999])
def test_free_memory_leaves_no_context_behind(code):
    library = Library(cuMemGetInfo_v2=code)
    failing = pytest.raises(CudaDriverError, match=r"cuMemGetInfo_v2 failed with error 999") if code else nullcontext()
    with failing:
        CudaDriver(library).free_bytes(1)
    assert [each for each in library.called if "Ctx" in each] == [
        "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2",
    ]  # fmt: skip


@pytest.mark.gpu
def test_devices_are_told_with_name_memory_and_compute_capability(cuda):
    driver = CudaDriver()
    gpu = driver.gpus()[cuda.index]
    assert driver.cuda_version >= (12, 0)
    assert (gpu.index, gpu.name.isprintable(), gpu.compute >= (6, 0)) == (cuda.index, True, True)
    assert 0 < driver.free_bytes(gpu.index) <= gpu.memory_bytes


STARTER = (f"{starter_bundles()[0]}/",)

BROKEN = [
    (FakeMachine(CPU_BUILD), "is a CPU build; CUDA needs an environment with turnscore's extra `gpu`"),
    (FakeMachine(driver="libcuda.so.1: cannot open shared object file"), r"no working NVIDIA driver \(libcuda.so.1"),
    (FakeMachine(driver_cuda=(12, 4)), "runs CUDA up to 12.4, ONNX Runtime 1.31.1 needs CUDA 13: install a newer"),
    (FakeMachine(devices=0), "shows this process no device: check nvidia-smi, CUDA_VISIBLE_DEVICES"),
    (FakeMachine(missing="libcudnn.so.9"), "needs libcudnn.so.9, which cannot be loaded: install the extra"),
    (FakeMachine(opening="CUDA failure 46: device busy"), "cuda:0 does not start: CUDA failure 46"),
    (FakeMachine(falls_back=True), "fell back to CPUExecutionProvider where CUDAExecutionProvider was asked for"),
]


def test_auto_takes_cuda_where_it_works_and_the_cpu_for_bundles_without_a_graph_for_it():
    choice = choose_devices("auto", FakeMachine())
    assert choice.devices == (Device("cuda", 0), CPU)
    assert choice.note == ""


@pytest.mark.parametrize(("machine", "reason"), BROKEN)
def test_cuda_that_cannot_be_used_is_an_error_with_its_fix_and_auto_computes_on_the_cpu(machine, reason):
    with pytest.raises(DeviceError, match=reason):
        choose_devices("cuda", machine)
    choice = choose_devices("auto", machine)
    assert choice.devices == (CPU,)
    assert re.search(reason, choice.note)


@pytest.mark.parametrize("asked", ["auto", "cpu", "cuda:0"])
@pytest.mark.parametrize("providers", [CPU_BUILD.providers, GPU_BUILD.providers])
def test_two_runtimes_at_once_are_refused_whichever_came_last(asked, providers):
    both = OnnxBuild(
        version="1.31.1", packages=("onnxruntime", "onnxruntime-gpu"), providers=providers, cuda_version=None
    )
    with pytest.raises(DeviceError, match="both installed and overwrite each other: pip uninstall -y"):
        choose_devices(asked, FakeMachine(both))


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DeviceError, match="no cuda:7; this process sees cuda:0 Made-Up 9000, cuda:1 Made-Up 9000"):
        choose_devices("cuda:7", FakeMachine())


@pytest.mark.parametrize(
    ("asked", "indices"),
    [("cuda:1", [1, 1, 1, 1]), ("cuda", [0, 1, 0, 1]), ("cuda:1,cuda:0", [1, 0, 1, 0]), ("auto", [0, 1, 0, 1])],
)
def test_workers_take_devices_in_turn(asked, indices):
    chosen = [choose_devices(asked, FakeMachine(), worker=worker).devices[0] for worker in range(4)]
    assert chosen == [Device("cuda", index) for index in indices]


@pytest.mark.parametrize(
    ("asked", "workers", "gpus", "sharing"),
    [("cuda", 4, 2, 2), ("cuda:0", 4, 2, 4), ("cuda:0,cuda:1", 3, 8, 2), ("auto", 1, 2, 1), ("auto", 2, 0, 2)],
)
def test_workers_on_one_device_are_counted(asked, workers, gpus, sharing):
    assert count_sharing_workers(asked, workers, gpus) == sharing


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:0,cpu", "cuda:0,", "auto,cuda:0", "CPU"])
def test_a_device_that_means_nothing_is_refused_as_a_setting(asked):
    with pytest.raises(ValueError, match="device"):
        RuntimeSettings(device=asked)


def test_a_starter_bundle_runs_on_the_cpu_of_a_machine_with_cuda_by_auto_only(caplog):
    with caplog.at_level(logging.WARNING, "turnscore.models"):
        scorers = load_scorers(LoadSettings(models=STARTER, threads=1), machine=FakeMachine())
    assert [(each.device, each.variant) for each in scorers.values()] == [(CPU, "cpu-int8")]
    assert "has no graph for cuda:0; it runs on the CPU" in caplog.text
    with pytest.raises(Exception, match=r"no graph for cuda:0 \(cuda-fp16 or fp32\); it has cpu-int8"):
        load_scorers(LoadSettings(models=STARTER, device="cuda"), machine=FakeMachine())
