"""The local engine: blocks in this process, or in several of this machine. A worker that dies is replaced.

Each process has an engine of its own with one thread: turns share nothing but the files, and N processes use N
cores.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection

from turnscore_core.engine import Engine

from turnscore_corpus.blocks import process_block
from turnscore_corpus.engines.work import Work
from turnscore_corpus.errors import StoppedError
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder

_AHEAD = 2
"""Blocks handed out to each worker, so that none waits for the next."""
_MOST_DEATHS = 3
"""Deaths of workers in a row, without a block committed between: then every worker would die."""


def run_here(work: Work, engine: Engine) -> None:
    """Processes the blocks on this engine, one after the other, in order."""
    for block in work.blocks:
        work.on_block(process_block(block, engine, work.output))


def run_processes(work: Work, workers: int) -> None:
    """Processes the blocks in `workers` processes; returns when all are committed.

    Raises StoppedError where workers die one after the other, and what a block raised. An interrupt waits until the
    blocks under way are committed.
    """
    left, deaths = deque(work.blocks), 0
    while left:
        known = len(left)
        try:
            _run_pool(work, workers, left)
        except BrokenProcessPool:
            deaths = 1 if len(left) < known else deaths + 1
            if deaths >= _MOST_DEATHS:
                told = "what they wrote above says why, or the memory is too small"
                raise StoppedError(f"{_MOST_DEATHS} workers died in a row, no block done between: {told}") from None


def _run_pool(work: Work, workers: int, left: deque[Block]) -> None:
    """Removes blocks from `left` as they are committed. Raises BrokenProcessPool where a worker died."""
    pool = ProcessPoolExecutor(
        min(workers, len(left)),
        mp_context=multiprocessing.get_context("spawn"),  # ONNX Runtime's threads do not survive a fork
        initializer=_begin,
        initargs=(work.open_engine, work.output),
    )
    waiting = deque(left)
    under_way: dict[Future[BlockManifest], Block] = {}
    try:
        while waiting or under_way:
            while waiting and len(under_way) < _AHEAD * workers:
                block = waiting.popleft()
                under_way[pool.submit(_process, block)] = block
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for each in sorted(done, key=lambda future: under_way[future].number):
                summary = each.result()
                left.remove(under_way.pop(each))
                work.on_block(summary)
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """What each worker process holds."""

    engine: Engine
    output: OutputFolder


def _begin(open_engine: Callable[[], Engine], output: OutputFolder) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when its workers end
    _end_with_parent()
    _Worker.engine, _Worker.output = open_engine(), output


def _process(block: Block) -> BlockManifest:
    return process_block(block, _Worker.engine, _Worker.output)


def _end_with_parent() -> None:
    """Ends the worker when its run is killed: it would wait for blocks for ever, with its models in memory."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
