"""I/O binding with padded shapes, on ONNX Runtime's CPU provider: the same buffers, bindings and copies as on CUDA."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support.graphs import draw_feeds, save_row_graph
from turnscore_core.inference.cuda_backend import BoundSession
from turnscore_core.inference.onnx_backend import round_axis


class WatchedSession:
    """ONNX Runtime's session; notes the shape of every run and the address of its first input's buffer."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.shapes: list[tuple[int, ...]] = []
        self.addresses: list[int] = []
        self.last_inputs: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any) -> None:
        self.last_inputs = binding._bound_inputs
        first = self.last_inputs["input_ids"]
        self.shapes.append(tuple(first.shape()))
        self.addresses.append(first.data_ptr())
        self._session.run_with_iobinding(binding)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = save_row_graph(tmp_path_factory.mktemp("graph") / "rows.onnx")
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture
def watched(plain: Any) -> WatchedSession:
    return WatchedSession(plain)


def bind(session: WatchedSession) -> BoundSession:
    return BoundSession(session, "cpu", 0, round_axis)


def run_plain(session: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(("sums", "pair_sums"), session.run(None, dict(feeds)), strict=True))


def assert_equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values), name


def test_padding_reaches_no_result_whatever_the_order_of_sizes(watched: WatchedSession, plain: Any):
    bound = bind(watched)
    sizes = [(1, 3, 1), (9, 70, 17), (9, 67, 3), (3, 5, 2), (9, 70, 17), (33, 9, 33)]
    for seed, (rows, tokens, pairs) in enumerate(sizes):
        feeds = draw_feeds(rows, tokens, pairs, seed)
        assert_equal(bound.run(feeds), run_plain(plain, feeds))
    assert watched.shapes == [(1, 8), (10, 80), (10, 80), (3, 8), (10, 80), (40, 16)]


def test_rows_beyond_the_last_repeat_it_so_that_no_empty_row_is_computed(watched: WatchedSession):
    bound = bind(watched)
    bound.run(draw_feeds(10, 8, 2, seed=1))
    bound.run(draw_feeds(9, 8, 2, seed=2))
    mask = watched.last_inputs["attention_mask"].numpy()
    assert mask.shape == (10, 8)
    assert np.array_equal(mask[9], mask[8])
    assert mask[9].any()


def test_an_answer_is_not_overwritten_by_the_next_batch(watched: WatchedSession, plain: Any):
    bound = bind(watched)
    feeds = draw_feeds(4, 8, 4, seed=1)
    first = bound.run(feeds)
    bound.run(draw_feeds(4, 8, 4, seed=2))
    assert_equal(first, run_plain(plain, feeds))


def test_threads_share_no_buffers(watched: WatchedSession, plain: Any):
    bound = bind(watched)
    meet = threading.Barrier(2)
    wrong: list[int] = []

    def work(seed: int) -> None:
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


def test_inputs_that_disagree_are_refused(watched: WatchedSession):
    feeds = draw_feeds(4, 8, 2)
    with pytest.raises(ValueError, match="input attention_mask has 3 rows, another has 4"):
        bind(watched).run({**feeds, "attention_mask": feeds["attention_mask"][:3]})
