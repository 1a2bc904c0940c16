"""The bare runtime on one device: opens a graph as the service does, times arrays that are ready. Nothing else."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_core.inference.devices import CudaDriverError, Device, ThisMachine, usable_cpus
from turnscore_core.inference.onnx_backend import Array, Backend, OnnxBackend

from turnscore_bench.gpu.findings import Start

Feeds = Mapping[str, Array]
LANES = (1, 2)
"""Batches at once: one alone, or one computing while another is copied, as the service does."""


def open_backend(graph: Path, device: Device) -> Backend:
    """The graph as the service opens it there."""
    if device.kind == "cpu":
        return OnnxBackend(graph, threads=usable_cpus())
    return CudaBackend(graph, device, CudaOptions())


def free_bytes(device: Device) -> int | None:
    """Device memory that nobody has taken; None where nobody reports it."""
    if device.kind == "cuda":
        with suppress(CudaDriverError):
            return ThisMachine().free_bytes(device.index)
    return None


def start_graph(
    model: str, graph: Path, export_seconds: float, device: Device, feeds: Callable[[Backend], Feeds]
) -> tuple[Backend, Start]:
    """Opens the graph and runs it once, with the clock and the memory watched."""
    before, started_at = free_bytes(device), time.perf_counter()
    backend = open_backend(graph, device)
    opened_at = time.perf_counter()
    backend.run(feeds(backend))
    ran_at, after = time.perf_counter(), free_bytes(device)
    taken = None if before is None or after is None else before - after
    size = sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
    return backend, Start(
        model=model,
        graph_bytes=size,
        export_seconds=export_seconds,
        open_seconds=opened_at - started_at,
        first_run_seconds=ran_at - opened_at,
        device_bytes=taken,
    )


def time_runs(run: Callable[[], object], runs: int, warm_up_runs: int = 3) -> float:
    """Median seconds of a run; it has ended when the call returns."""
    took = []
    for number in range(runs + warm_up_runs):
        started_at = time.perf_counter()
        run()
        if number >= warm_up_runs:
            took.append(time.perf_counter() - started_at)
    return median(took)


def seconds_per_batch(backend: Backend, feeds: Feeds, lanes: int, runs: int) -> float:
    """Wall seconds divided by batches, so many of them at once."""
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(lambda _: backend.run(feeds), range(4 * lanes)))  # every thread has its buffers
        started_at = time.perf_counter()
        list(pool.map(lambda _: backend.run(feeds), range(runs)))
        return (time.perf_counter() - started_at) / runs


def best_rows_per_second(backend: Backend, batches: Sequence[Feeds], runs: int, axis: str = "input_ids") -> float:
    """The most rows per second over the batches and lanes."""
    return max(
        len(feeds[axis]) / seconds_per_batch(backend, feeds, lanes, max(runs, 2 * lanes))
        for feeds in batches
        for lanes in LANES
    )


def encoder_feeds(rows: int, tokens: int, vocabulary: int, seed: int = 0) -> dict[str, Array]:
    """A full batch of the engagement graph: rows of one length, every two of them a pair."""
    ids = np.random.default_rng(seed).integers(5, vocabulary, (rows, tokens))
    first = np.arange(0, rows, 2)
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "query_row": first,
        "reply_row": np.minimum(first + 1, rows - 1),
    }
