"""The Ray engine: a plan's blocks done by a pool of actors of Ray Data, on this machine or on a cluster.

Ray schedules, replaces what dies and streams; it carries numbers of blocks, never a text. Each
block is committed by the worker that scored it, so a worker, a node or the driver may be killed at any moment.
"""

import logging
import os
import queue
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset, ExecutionResources
from turnscore_client._files.runs import Reply, Request, StoppedError
from turnscore_core.inference.devices import usable_cpus
from turnscore_wire import Limits, ModelDescription

from turnscore_corpus.engines.work import SPARE_CPUS, EngineChoice, RayChoice, Work, process_block, size_pool
from turnscore_corpus.inputs.files import BadInputError
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockEngine, BlockManifest, OutputFolder, manifest_name, read_manifest

# Ray's object store on a machine of our own; Ray's least is 75 MiB. A block puts less than 2 KB into it: its number,
# and whether it failed.
OBJECT_STORE_BYTES = 100 * 1024 * 1024
_BYTES_PER_BLOCK = 16 * 1024  # bytes that a block may take there: eight times that
_AHEAD = 2  # blocks handed to an actor ahead, so that it does not wait for the next
# How often one actor is started again, wherever there is room: then a block kills it. Chosen. Its tasks are tried
# without a bound: until it is known that its node is gone each try fails at once (three were used up before the actor
# had been started again).
_RESTARTS = 8
MOST_ACTORS = 1024  # for the lines of a file
_CONNECT_SECONDS = 10.0
_ENDED = None


class BlockWorker:
    """One actor: an engine, and the blocks that Ray hands to it. Returns an error as a row, and raises nothing."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._engine: BlockEngine | None = None

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._do(self._work.blocks[place]) for place in batch["place"].to_pylist()])

    def _do(self, block: Block) -> dict[str, Any]:
        try:
            # A worker that died may have committed it.
            if _find_committed(self._work.output, block.number) is None:
                process_block(block, self._open(), self._work.output, self._work.options)
            return {"number": block.number, "error": "", "message": ""}
        except Exception as error:
            logging.getLogger("turnscore.corpus").exception("block %d failed", block.number)
            return {"number": block.number, "error": type(error).__name__, "message": str(error)}

    def _open(self) -> BlockEngine:
        if self._engine is None:
            self._engine = self._work.open_engine()
        return self._engine


def run_on_ray(choice: RayChoice, work: Work) -> None:
    """Processes the blocks on Ray; returns when all are committed.

    Raises StoppedError where Ray gives up, or nothing is committed for a long time, and what a block raised.
    """
    with _cluster(choice, len(work.blocks)) as size:
        _drain(_results(_plan(choice, size, work)), work, choice.stall_seconds)


class FileWorker:
    """One actor: an engine of one thread for the lines of a file."""

    def __init__(self, models: Sequence[str] | None, scorers: Sequence[str] | None) -> None:
        self._engine = EngineChoice(models=models, scorers=scorers).open()

    def describe(self) -> tuple[Limits, Sequence[ModelDescription]]:
        """The engine's limits and models."""
        return self._engine.limits, self._engine.models

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """A reply for each."""
        return self._engine.answer(requests)


class RayFileEngine:
    """Answers a file's lines in actors: `turnscore score --engine ray`, on RAY_ADDRESS or this machine."""

    def __init__(self, models: Sequence[str] | None, scorers: Sequence[str] | None) -> None:
        self._cluster = ExitStack()
        choice = RayChoice(address=os.environ.get("RAY_ADDRESS"))
        count, _ = self._cluster.enter_context(_cluster(choice, MOST_ACTORS))
        actor = ray.remote(FileWorker).options(num_cpus=1, max_restarts=_RESTARTS, max_task_retries=-1)
        self._actors = [actor.remote(models, scorers) for _ in range(count)]
        self.limits, self.models = ray.get(self._actors[0].describe.remote())

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """A reply for each, in order. A worker that dies is started again, and its lines are asked again."""
        share = -(-len(requests) // len(self._actors))
        parts = [requests[start : start + share] for start in range(0, len(requests), share)]
        asked = [actor.answer.remote(part) for actor, part in zip(self._actors, parts, strict=False)]
        return [reply for own in ray.get(asked) for reply in own]

    def close(self) -> None:
        """Ends the actors, and Ray where this engine started it."""
        for actor in self._actors:
            ray.kill(actor)
        self._cluster.close()


@contextmanager
def _cluster(choice: RayChoice, blocks: int) -> Iterator[tuple[int, int]]:
    """The first and the most actors, while connected to the cluster; it is ended too if this run started it."""
    # Turns off Ray Data's progress bars and plans: the run reports its own progress.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False
    if not (is_shared := ray.is_initialized()):
        _connect(choice)
    try:
        yield size_pool(ray.cluster_resources(), choice, blocks)
    finally:
        if not is_shared:
            ray.shutdown()


def _connect(choice: RayChoice) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports home otherwise
    common: dict[str, Any] = {"logging_level": "warning", "configure_logging": True}
    try:
        if choice.address is not None:
            _require_listener(choice.address)
            ray.init(address=choice.address, **common)
            return
        # "local": Ray would else join a cluster that it finds, also a dead one.
        ray.init(
            address="local",
            num_cpus=(choice.workers or usable_cpus()) + SPARE_CPUS,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            **common,
        )
    except Exception as error:  # Ray raises plain ones too
        where = choice.address or "this machine"
        raise StoppedError(f"Ray does not start on {where}: {_first_line(error)}") from error


def _require_listener(address: str) -> None:
    """Raises OSError where nothing listens at HOST:PORT: Ray would retry for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()


def _plan(choice: RayChoice, size: tuple[int, int], work: Work) -> Dataset:
    """One block of Ray Data for each of ours: what Ray starts, retries and streams."""
    first, most = size
    context = DataContext.get_current()
    store = max(OBJECT_STORE_BYTES, _BYTES_PER_BLOCK * len(work.blocks))
    context.target_max_block_size = _BYTES_PER_BLOCK  # by which Ray reserves room for what comes out of a worker
    context.execution_options.resource_limits = ExecutionResources.for_limits(object_store_memory=store)
    places = ray.data.from_items(
        [{"place": place} for place in range(len(work.blocks))], override_num_blocks=len(work.blocks)
    )
    kept = replace(work, on_block=_ignore)
    return places.map_batches(
        BlockWorker,
        fn_constructor_args=(kept,),
        batch_size=1,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(min_size=1, max_size=most, initial_size=first, max_tasks_in_flight_per_actor=_AHEAD),
        num_cpus=1,
        num_gpus=choice.gpus_per_worker or None,
        max_restarts=_RESTARTS,
        max_task_retries=-1,
    )


def _results(dataset: Dataset) -> Iterator[Mapping[str, Any]]:
    for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from batch.to_pylist()


def _drain(rows: Iterator[Mapping[str, Any]], work: Work, stall_seconds: float) -> None:
    """Takes results in a thread of its own, so that a silent Ray is noticed."""
    found: queue.Queue[Mapping[str, Any] | BaseException | None] = queue.Queue()
    threading.Thread(target=_pump, args=(rows, found), daemon=True).start()
    longest = 0.0
    left = {block.number for block in work.blocks}
    while True:
        patience = max(stall_seconds, 5 * longest)  # after five times its longest block a run hangs
        try:
            row = found.get(timeout=patience)
        except queue.Empty:
            raise StoppedError(f"no block was committed for {patience:.0f} s; {_describe_cluster()}") from None
        if row is _ENDED:
            break
        if isinstance(row, BaseException):
            raise StoppedError(f"Ray gave up: {_first_line(row)}") from row
        if row["error"]:
            raise _error_of(row)
        manifest = _find_committed(work.output, row["number"])
        if manifest is None:
            raise StoppedError(
                f"a worker committed block {row['number']} where this machine does not see it: {work.output.place} "
                "must be on a file system that all nodes share, or an address such as s3://bucket/folder"
            )
        longest = max(longest, manifest.seconds)
        left.discard(manifest.block)
        work.on_block(manifest)
    if left:
        raise StoppedError(f"Ray ended without {len(left)} blocks, the first of them block {min(left)}")


def _pump(rows: Iterator[Mapping[str, Any]], found: "queue.Queue[Any]") -> None:
    try:
        for row in rows:
            found.put(row)
        found.put(_ENDED)
    except BaseException as error:
        found.put(error)


def _find_committed(output: OutputFolder, number: int) -> BlockManifest | None:
    """The block's manifest, if it is committed: `clean` removed files without a manifest before."""
    return read_manifest(output.store.get(manifest_name(number)) or b"")


def _error_of(row: Mapping[str, Any]) -> Exception:
    """The error as the local engine would raise it, where it is one of ours; else what stopped the run."""
    if row["error"] == BadInputError.__name__:
        return BadInputError(row["message"])
    return StoppedError(f"block {row['number']}: {row['error']}: {row['message']}")


def _describe_cluster() -> str:
    """What the cluster has free, for the message about a hung run."""
    if not ray.is_initialized():
        return "Ray is not connected"
    total, free = ray.cluster_resources(), ray.available_resources()
    parts = [f"{free.get(name, 0):g} of {total[name]:g} {name}s are free" for name in ("CPU", "GPU") if name in total]
    return f"of Ray's cluster {', '.join(parts) or 'nothing is left'}"


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ if error.__cause__ is not None and not str(error).strip() else error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}"


def _ignore(_: BlockManifest) -> None:
    """Does nothing: workers report by their rows."""
