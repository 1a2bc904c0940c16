from pathlib import Path

import psutil
from support.graphs import draw_feeds, save_row_graph
from turnscore_service.inference.onnx_backend import OnnxBackend

ROWS, TOKENS = 4096, 1024
"""Of the row graph's products, in 8 bytes each: 32 MiB."""


def resident_mib() -> float:
    return psutil.Process().memory_info().rss / 2**20


def test_the_models_of_a_process_share_what_memory_one_of_them_took(tmp_path: Path):
    graph, feeds = save_row_graph(tmp_path / "rows.onnx"), draw_feeds(ROWS, TOKENS, 1)
    backends = [OnnxBackend(graph, threads=1) for _ in range(4)]
    backends[0].run(feeds)
    after_the_first = resident_mib()
    for backend in backends[1:]:
        backend.run(feeds)
    assert resident_mib() - after_the_first < 32  # an arena each would take three times that
