"""The engines that answer blocks, here or through a service, and how their blocks are processed."""

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection

import turnscore_wire as wire
from turnscore_client import AsyncTurnScoreClient, NotFoundError, ServiceError, TurnScoreError
from turnscore_client._files.runs import Reply, Request, StoppedError, until_stopped
from turnscore_client._files.scoring import Patient, in_order, read_models
from turnscore_client._options import Options
from turnscore_core.engine import Engine, SharedScores, choose_bundles

from turnscore_corpus.inputs.dialogues import InputDialogue, Read, SetAside, read_dialogues
from turnscore_corpus.inputs.formats import RecordReader
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockEngine, BlockManifest, BlockRows, OutputFolder


@contextmanager
def resting_collector() -> Iterator[None]:
    """Pauses the collector inside the block, and restores it however the block ends.

    A block makes no cycles: reference counts free what it holds. The collector's walks took half of the CPU time that a
    block costs besides the runtime: 0.07 of 0.15 ms per turn (a core of an AMD EPYC, 2026-11-22).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Characters that are scored in one call: one of the largest dialogues is twice that, a block of common ones a fifth.
# The memory of a call is in proportion to it.
MOST_CHARS = 4_000_000

_reader = RecordReader()


def process_block(
    block: Block, engine: BlockEngine, output: OutputFolder, options: Options | None = None
) -> BlockManifest:
    """Scores a block and commits it whole; a second run writes the same. Python's cyclic collector rests meanwhile.

    What cannot be scored goes to the side table. Raises BadInputError where the file differs from the plan, OSError
    where the output cannot be written, and StoppedError where the engine does not answer.
    """
    asked = {"scorers": [each.scorer for each in engine.models], "options": options or None}
    started_at, computed_before = time.monotonic(), engine.turns_computed
    rows = BlockRows(block.file.place, engine.models)
    with resting_collector():
        records = _reader.read(block.file, block.columns, block.start, block.rows, block.offset)
        for some in _in_calls(read_dialogues(records, block.columns, engine.limits)):
            dialogues = [each for each in some if isinstance(each, InputDialogue)]
            requests = [wire.DialogueRequest.model_validate({"turns": each.turns, **asked}) for each in dialogues]
            replies = iter(engine.answer(requests) if requests else ())
            for each in some:
                if isinstance(each, SetAside):
                    rows.set_aside(each)
                else:
                    rows.add(each, next(replies))
        return output.commit(
            block,
            rows.tables(),
            turns_computed=engine.turns_computed - computed_before,
            seconds=time.monotonic() - started_at,
        )


def _in_calls(found: Iterable[Read]) -> Iterator[list[Read]]:
    """The dialogues in lists of at most MOST_CHARS characters."""
    some: list[Read] = []
    chars = 0
    for each in found:
        size = each.chars if isinstance(each, InputDialogue) else 0
        if some and chars + size > MOST_CHARS:
            yield some
            some, chars = [], 0
        some.append(each)
        chars += size
    if some:
        yield some


NAMESPACE = "corpus"  # namespace of scores in a Redis, apart from a service's
OnBlock = Callable[[BlockManifest], object]


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """How a worker makes its engine, of one thread. Can be pickled."""

    # Bundles, as TURNSCORE_MODELS takes them; each worker must be able to read them. None: the starter bundles.
    models: Sequence[str] | None = None
    scorers: Sequence[str] | None = None  # the scorers asked for; None: all but stand-ins
    options: Options = field(default_factory=dict)
    device: str = "cpu"
    max_batch_tokens: int | None = None
    redis: str | None = field(default=None, repr=False)  # the address of a Redis in which workers share known scores
    namespace: str = NAMESPACE

    def open(self) -> Engine:
        """Loads the models. Raises BundleError, DeviceError, OptionsError."""
        return Engine(
            choose_bundles(self.models, self.scorers),
            device=self.device,
            options=self.options,
            max_batch_tokens=self.max_batch_tokens,
            shared=None if self.redis is None else _open_redis(self.redis),
            namespace=self.namespace,
        )


def _open_redis(address: str) -> SharedScores:
    from turnscore_service.cache.redis_scores import RedisScores

    return RedisScores(address)


class ServiceEngine:
    """Answers through a running service, as patiently as `turnscore score`."""

    code_versions: Mapping[str, str] = {}  # the service does not say

    def __init__(self, client: AsyncTurnScoreClient, patient: Patient, scorers: Sequence[str] | None) -> None:
        """Waits for the service. Raises StoppedError, and the TurnScoreError of scorers or options that it refuses."""
        self._client = client
        self._patient = patient
        self.turns_computed = 0
        self._runner = asyncio.Runner()
        try:
            found = self._runner.run(until_stopped(read_models(client, patient)))
            if patient.probe is not None:
                self._runner.run(until_stopped(patient.ask(patient.probe)))
        except BaseException:
            self.close()
            raise
        self.limits = found.limits
        self.models = [each for each in found.models if (each.scorer in scorers if scorers else each.is_default)]

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """A reply for each, in order. Raises StoppedError where the service gives none, or another model's."""

        async def ask_all() -> list[Reply]:
            asked = in_order((self._ask(each) for each in requests), self._patient.pace)
            async with aclosing(asked):
                return [reply async for reply in asked]

        return self._runner.run(until_stopped(ask_all()))

    async def _ask(self, request: Request) -> Reply:
        ask = partial(self._client.score_dialogue, request.turns, scorers=request.scorers, options=request.options)
        try:
            reply = await self._patient.ask(lambda timeout: ask(timeout_seconds=timeout))
        except ServiceError as error:
            if isinstance(error, NotFoundError) or str(error.field).startswith(("scorers", "options")):
                raise StoppedError(str(error)) from None  # which the service took at first
            return wire.ErrorReply(error=error.detail(), request_id=error.request_id or "")
        except TurnScoreError as error:  # a proxy's: no dialogue is to blame
            raise StoppedError(str(error)) from None
        models = {each.scorer: each.model for each in self.models}
        for name, score in (each for turn in reply.turns for each in turn.scores.items()):
            if score.model != models.get(name):
                raise StoppedError(f"the service answered with {score.model}, and the output is of {models.get(name)}")
            self.turns_computed += not score.cached
        return reply

    def close(self) -> None:
        """Ends the connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()


@dataclass(frozen=True, kw_only=True)
class Work:
    """The rest of a run."""

    blocks: Sequence[Block]
    open_engine: Callable[[], BlockEngine]  # each worker calls it once, in its process
    output: OutputFolder
    options: Options = field(default_factory=dict)
    on_block: OnBlock  # the run calls it, in its own process, as each block is committed


# Logical CPUs that the pool leaves to Ray Data's own tasks: a pool that takes all of them waits for ever, without a
# word, as soon as anything else asks for one (met with a reader, and with a checkpoint's filter).
SPARE_CPUS = 3


@dataclass(frozen=True, kw_only=True)
class RayChoice:
    """Where the actors run, and what each takes."""

    address: str | None = None  # the cluster's address; None for Ray on this machine, for this run
    # Most actors; None for as many as fit. A cluster that grows may be asked for more than fit at the start.
    workers: int | None = None
    gpus_per_worker: float = 0.0
    # Seconds without a commit after which the run ends and reports what it waits for.
    stall_seconds: float = 1800.0  # A block of 1,000 dialogues takes FED some 300 s on one core.


def size_pool(resources: Mapping[str, float], choice: RayChoice, blocks: int) -> tuple[int, int]:
    """The first and the most actors of a cluster of these resources. Raises StoppedError where no actor fits."""
    cpus, gpus = int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
    fit = cpus - SPARE_CPUS
    if choice.gpus_per_worker:
        fit = min(fit, int(gpus / choice.gpus_per_worker))
    if fit < 1 and choice.workers is None:
        wanted = f"{1 + SPARE_CPUS} CPUs" + (f" and {choice.gpus_per_worker:g} GPUs" if choice.gpus_per_worker else "")
        raise StoppedError(
            f"the cluster has {cpus} CPUs and {gpus:g} GPUs; one worker needs {wanted}, {SPARE_CPUS} of the CPUs for "
            "Ray's own tasks. Give --workers where the cluster will grow"
        )
    most = max(1, min(choice.workers or fit, blocks))
    return max(1, min(fit, most)), most


_AHEAD = 2  # blocks handed out to each worker, so that none waits for the next
_MOST_DEATHS = 3  # deaths of workers in a row, without a block committed between: then every worker would die


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
        initargs=(work.open_engine, work.output, work.options),
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

    engine: BlockEngine
    output: OutputFolder
    options: Options


def _begin(open_engine: Callable[[], BlockEngine], output: OutputFolder, options: Options) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when its workers end
    _end_with_parent()
    _Worker.engine, _Worker.output, _Worker.options = open_engine(), output, options


def _process(block: Block) -> BlockManifest:
    return process_block(block, _Worker.engine, _Worker.output, _Worker.options)


def _end_with_parent() -> None:
    """Ends the worker when its run is killed: it would wait for blocks for ever, with its models in memory."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
