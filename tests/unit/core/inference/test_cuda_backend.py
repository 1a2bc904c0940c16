"""CUDA: opening a graph, I/O binding with padded shapes on the CPU provider, and what happens when it does not work."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from support.graphs import draw_feeds, run_graph, save_row_graph
from turnscore_core.inference.cuda_backend import BoundSession, CudaBackend, CudaOptions, provider_list
from turnscore_core.inference.devices import Device
from turnscore_core.inference.onnx_backend import DeviceError, OutOfMemoryError, round_axis

CUDA_1 = Device("cuda", 1)


class FakeSession:
    """Says that it runs on the providers it was given; fails in a run as it is told to."""

    def __init__(self, providers, failure=None):
        self._providers = providers
        self._failure = failure

    def get_providers(self):
        return self._providers

    def get_inputs(self):
        return [SimpleNamespace(name="input_ids", type="tensor(int64)", shape=["rows", "tokens"])]

    def get_outputs(self):
        return [SimpleNamespace(name="sums", type="tensor(float)", shape=["rows"])]

    def io_binding(self):
        raise RuntimeError(self._failure)


def opening(providers, failure=None):
    return lambda *_, **__: FakeSession(providers, failure)


def test_a_session_that_fell_back_to_the_cpu_is_refused():
    with pytest.raises(DeviceError, match=r"fell back to CPUExecutionProvider for g.onnx, where CUDAExecutionProvider"):
        CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(), open_session=opening(["CPUExecutionProvider"]))


def test_a_graph_that_cuda_refuses_is_told_with_the_runtimes_words():
    def fail(*_, **__):
        raise ValueError("invalid device ordinal")

    with pytest.raises(RuntimeError, match=r"cannot load g.onnx on CUDAExecutionProvider: invalid device ordinal"):
        CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(), open_session=fail)


OUT_OF_MEMORY = [
    "Non-zero status code returned while running MatMul node. /onnxruntime_src/bfc_arena.cc:376 "
    "Failed to allocate memory for requested buffer of size 4294967296",
    "CUDA failure 2: out of memory ; GPU=0",
    "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
]


@pytest.mark.parametrize("words", OUT_OF_MEMORY)
def test_the_end_of_device_memory_is_told_apart_from_other_failures(words):
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
    asked = []

    def open_session(graph, *, providers, **_):
        asked.append((graph.name, providers[0]))
        return FakeSession(["CUDAExecutionProvider"], None)

    first = CudaBackend(Path("g.onnx"), CUDA_1, CudaOptions(memory_limit_bytes=5_000), open_session=open_session)
    first.open_part(Path("heads.onnx")).open_part(Path("others.onnx"))
    assert [name for name, _ in asked] == ["g.onnx", "heads.onnx", "others.onnx"]
    assert all(each == asked[0][1] for _, each in asked)


@pytest.mark.gpu
def test_a_graph_on_cuda_gives_what_it_gives_on_the_cpu(cuda, tmp_path):
    path = save_row_graph(tmp_path / "rows.onnx")
    feeds = draw_feeds(9, 70, 17)
    [expected] = run_graph(path, feeds, "pair_sums")
    backend = CudaBackend(path, cuda, CudaOptions())
    for _ in range(3):
        assert backend.run(feeds)["pair_sums"] == pytest.approx(expected)


class WatchedSession:
    """ONNX Runtime's session; notes the shape of every run and the address of its first input's buffer."""

    def __init__(self, session):
        self._session = session
        self.shapes = []
        self.addresses = []
        self.last_inputs = {}

    def __getattr__(self, name):
        return getattr(self._session, name)

    def run_with_iobinding(self, binding):
        self.last_inputs = binding._bound_inputs
        first = self.last_inputs["input_ids"]
        self.shapes.append(tuple(first.shape()))
        self.addresses.append(first.data_ptr())
        self._session.run_with_iobinding(binding)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = save_row_graph(tmp_path_factory.mktemp("graph") / "rows.onnx")
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture
def watched(plain):
    return WatchedSession(plain)


def bind(session):
    return BoundSession(session, "cpu", 0, round_axis)


def run_plain(session, feeds):
    return dict(zip(("sums", "pair_sums"), session.run(None, dict(feeds)), strict=True))


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values), name


def test_padding_reaches_no_result_whatever_the_order_of_sizes(watched, plain):
    bound = bind(watched)
    sizes = [(1, 3, 1), (9, 70, 17), (9, 67, 3), (3, 5, 2), (9, 70, 17), (33, 9, 33)]
    for seed, (rows, tokens, pairs) in enumerate(sizes):
        feeds = draw_feeds(rows, tokens, pairs, seed)
        assert_equal(bound.run(feeds), run_plain(plain, feeds))
    assert watched.shapes == [(1, 8), (10, 80), (10, 80), (3, 8), (10, 80), (40, 16)]


def test_rows_beyond_the_last_repeat_it_so_that_no_empty_row_is_computed(watched):
    bound = bind(watched)
    bound.run(draw_feeds(10, 8, 2, seed=1))
    bound.run(draw_feeds(9, 8, 2, seed=2))
    mask = watched.last_inputs["attention_mask"].numpy()
    assert mask.shape == (10, 8)
    assert np.array_equal(mask[9], mask[8])
    assert mask[9].any()


def test_an_answer_is_not_overwritten_by_the_next_batch(watched, plain):
    bound = bind(watched)
    feeds = draw_feeds(4, 8, 4, seed=1)
    first = bound.run(feeds)
    bound.run(draw_feeds(4, 8, 4, seed=2))
    assert_equal(first, run_plain(plain, feeds))


def test_threads_share_no_buffers(watched, plain):
    bound = bind(watched)
    meet = threading.Barrier(2)
    wrong = []

    def work(seed):
        for turn in range(50):
            feeds = draw_feeds(4, 16, 4, seed + turn)
            meet.wait(60)
            if not np.array_equal(bound.run(feeds)["sums"], run_plain(plain, feeds)["sums"]):
                wrong.append(seed + turn)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert len(set(watched.addresses)) == 2


def test_inputs_that_disagree_are_refused(watched):
    feeds = draw_feeds(4, 8, 2)
    with pytest.raises(ValueError, match="input attention_mask has 3 rows, another has 4"):
        bind(watched).run({**feeds, "attention_mask": feeds["attention_mask"][:3]})
