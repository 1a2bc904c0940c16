"""Opening a graph on CUDA, and what happens when it does not work; ONNX Runtime's class is made up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.graphs import draw_feeds, run_graph, save_row_graph
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions, provider_list
from turnscore_core.inference.devices import Device
from turnscore_core.inference.onnx_backend import DeviceError, OutOfMemoryError

CUDA_1 = Device("cuda", 1)


class FakeSession:
    """Says that it runs on the providers it was given; fails in a run as it is told to."""

    def __init__(self, providers: list[str], failure: str | None = None) -> None:
        self._providers = providers
        self._failure = failure

    def get_providers(self) -> list[str]:
        return self._providers

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="input_ids", type="tensor(int64)", shape=["rows", "tokens"])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="sums", type="tensor(float)", shape=["rows"])]

    def io_binding(self) -> Any:
        raise RuntimeError(self._failure)


def opening(providers: list[str], failure: str | None = None) -> Any:
    return lambda *_, **__: FakeSession(providers, failure)


def test_a_session_that_fell_back_to_the_cpu_is_refused():
    with pytest.raises(DeviceError, match=r"fell back to CPUExecutionProvider for g.onnx, where CUDAExecutionProvider"):
        CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(), open_session=opening(["CPUExecutionProvider"]))


def test_a_graph_that_cuda_refuses_is_told_with_the_runtimes_words():
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("invalid device ordinal")

    with pytest.raises(RuntimeError, match=r"cannot load g.onnx on CUDAExecutionProvider: invalid device ordinal"):
        CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(), open_session=fail)


@pytest.mark.parametrize(
    "words",
    [
        "Non-zero status code returned while running MatMul node. /onnxruntime_src/bfc_arena.cc:376 "
        "Failed to allocate memory for requested buffer of size 4294967296",
        "CUDA failure 2: out of memory ; GPU=0",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
    ],
)
def test_the_end_of_device_memory_is_told_apart_from_other_failures(words: str):
    opened = opening(["CUDAExecutionProvider"], words)
    backend = CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(), open_session=opened)
    with pytest.raises(OutOfMemoryError):
        backend.run({"input_ids": draw_feeds(2, 3, 1)["input_ids"]})


def test_cuda_keeps_fp32_where_fp16_is_not_enough_and_stands_on_its_own_device():
    [(name, options), *rest] = provider_list(CUDA_1, CudaOptions(memory_limit_bytes=5_000))
    assert name == "CUDAExecutionProvider"
    assert options["device_id"] == "1"
    assert (options["use_tf32"], options["enable_skip_layer_norm_strict_mode"]) == ("0", "1")
    assert options["gpu_mem_limit"] == "5000"
    assert [name for name, _ in rest] == ["CPUExecutionProvider"]


def test_another_part_of_the_bundle_stands_on_the_same_device():
    asked: list[Any] = []

    def open_session(graph: Path, *, providers: Any, **_: Any) -> FakeSession:
        asked.append((graph.name, providers[0]))
        return FakeSession(["CUDAExecutionProvider"], None)

    first = CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(memory_limit_bytes=5_000), open_session=open_session)
    first.open_part(Path("heads.onnx")).open_part(Path("others.onnx"))
    assert [name for name, _ in asked] == ["g.onnx", "heads.onnx", "others.onnx"]
    assert all(each == asked[0][1] for _, each in asked)


@pytest.mark.gpu
def test_a_graph_on_cuda_gives_what_it_gives_on_the_cpu(cuda: Device, tmp_path: Path):
    path = save_row_graph(tmp_path / "rows.onnx")
    feeds = draw_feeds(9, 70, 17)
    [expected] = run_graph(path, feeds, "pair_sums")
    backend = CudaBackend(path, cuda, CudaOptions())
    for _ in range(3):
        assert backend.run(feeds)["pair_sums"] == pytest.approx(expected)
