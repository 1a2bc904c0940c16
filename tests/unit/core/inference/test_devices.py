"""Which device is chosen, and what is said where it cannot be used; the machines are made up."""

import logging

import pytest
from support.machines import CPU_BUILD, GPU_BUILD, FakeMachine
from turnscore_core.inference.devices import CPU, Device, choose_devices, count_workers_beside
from turnscore_core.inference.onnx_backend import DeviceError, OnnxBuild
from turnscore_core.load_settings import LoadSettings
from turnscore_core.model_loader import load_scorers
from turnscore_models import starter_bundles
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import RuntimeSettings, Settings

STARTER = (f"{starter_bundles()[0]}/",)

BROKEN = [
    (FakeMachine(CPU_BUILD), "is a CPU build: pip uninstall -y onnxruntime onnxruntime-gpu, then pip install"),
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
def test_cuda_that_cannot_be_used_is_an_error_with_reason_and_fix(machine: FakeMachine, reason: str):
    with pytest.raises(DeviceError, match=reason):
        choose_devices("cuda", machine)


@pytest.mark.parametrize(("machine", "reason"), BROKEN)
def test_auto_computes_on_the_cpu_there_and_says_why(machine: FakeMachine, reason: str):
    choice = choose_devices("auto", machine)
    assert choice.devices == (CPU,)
    with pytest.raises(DeviceError, match=reason):
        raise DeviceError(choice.note)


@pytest.mark.parametrize("asked", ["auto", "cpu", "cuda:0"])
@pytest.mark.parametrize("providers", [CPU_BUILD.providers, GPU_BUILD.providers])
def test_two_runtimes_at_once_are_refused_whichever_came_last(asked: str, providers: tuple[str, ...]):
    both = OnnxBuild(
        version="1.31.1", packages=("onnxruntime", "onnxruntime-gpu"), providers=providers, cuda_version=None
    )
    with pytest.raises(DeviceError, match="both installed and overwrite each other: pip uninstall -y"):
        choose_devices(asked, FakeMachine(both))


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DeviceError, match="no cuda:7; this process sees cuda:0 Made-Up 9000, cuda:1 Made-Up 9000"):
        choose_devices("cuda:7", FakeMachine())


def test_the_cpu_is_chosen_without_asking_the_driver():
    assert choose_devices("cpu", FakeMachine(driver="broken", installed=GPU_BUILD)).devices == (CPU,)


def test_without_a_runtime_not_even_the_cpu_is_chosen():
    with pytest.raises(DeviceError, match="not installed"):
        choose_devices("cpu", FakeMachine(DeviceError("not installed")))


@pytest.mark.parametrize(
    ("asked", "indices"),
    [
        ("cuda:1", [1, 1, 1, 1]),
        ("cuda", [0, 1, 0, 1]),
        ("cuda:1,cuda:0", [1, 0, 1, 0]),
        ("auto", [0, 1, 0, 1]),
    ],
)
def test_workers_take_devices_in_turn(asked: str, indices: list[int]):
    chosen = [choose_devices(asked, FakeMachine(), worker=worker).devices[0] for worker in range(4)]
    assert chosen == [Device("cuda", index) for index in indices]


def test_only_the_workers_own_device_is_opened():
    machine = FakeMachine()
    choose_devices("cuda:0,cuda:1", machine, worker=1)
    assert machine.opened == [1]


@pytest.mark.parametrize(
    ("asked", "workers", "gpus", "beside"),
    [("cuda", 4, 2, 2), ("cuda:0", 4, 2, 4), ("cuda:0,cuda:1", 3, 8, 2), ("auto", 1, 2, 1), ("auto", 2, 0, 2)],
)
def test_workers_on_one_device_are_counted(asked: str, workers: int, gpus: int, beside: int):
    assert count_workers_beside(asked, workers, gpus) == beside


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:0,cpu", "cuda:0,", "auto,cuda:0", "CPU"])
def test_a_device_that_means_nothing_is_refused_as_a_setting(asked: str):
    with pytest.raises(ValueError, match="device"):
        RuntimeSettings(device=asked)


async def test_the_service_stays_alive_and_tells_why_it_does_not_use_cuda():
    settings = Settings(runtime=RuntimeSettings(device="cuda:0"))
    runtime = Runtime(settings, load=lambda each: load_scorers(each.loading(), machine=FakeMachine(CPU_BUILD)))
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.health.state == "refused"
    assert "is a CPU build" in runtime.health.reason
    await runtime.stop()


def test_auto_logs_why_it_computes_on_the_cpu(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "turnscore.models"):
        scorers = load_scorers(LoadSettings(models=STARTER), machine=FakeMachine(CPU_BUILD))
    assert [each.device for each in scorers.values()] == [CPU]
    assert "computing on the CPU: the installed ONNX Runtime 1.31.1 is a CPU build" in caplog.text


def test_a_starter_bundle_runs_on_the_cpu_of_a_machine_with_cuda_by_auto_only(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "turnscore.models"):
        scorers = load_scorers(LoadSettings(models=STARTER), machine=FakeMachine())
    assert [(each.device, each.variant) for each in scorers.values()] == [(CPU, "cpu-int8")]
    assert "has no graph for cuda:0; it runs on the CPU" in caplog.text
    with pytest.raises(Exception, match=r"no graph for cuda:0 \(cuda-fp16 or fp32\); it has cpu-int8"):
        load_scorers(LoadSettings(models=STARTER, device="cuda"), machine=FakeMachine())
