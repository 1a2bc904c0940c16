"""Batching: token-budget batches of similar width, one queue per scorer. Answers every caller, always.

An idle lane starts at once: there is no wait window, and what is queued is dealt out evenly to the lanes that are idle.
The turn whose time has come (fair_shares.py; a single caller's oldest) is in the next batch, and every few batches the
oldest of all, so nobody waits behind others for ever; its neighbours in width fill the budget. A turn whose caller left
or ran out of time is taken out before inference. A batch that fails is halved until the failing turn stands alone;
where memory ended, the halves are scored and the batches that follow are smaller.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from turnscore_core.batches import TokenLimit
from turnscore_core.deadline import Deadline
from turnscore_core.errors import DeadlineExceededError, NotReadyError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_core.scoring import PackResult, score_isolating, to_scoring_error

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER
from turnscore_service.scheduling.batch_queue import BatchQueue, PackScores, QueuedPack
from turnscore_service.scheduling.executor import ExecutorWatch, SupervisedExecutor
from turnscore_service.settings.service import BatchingSettings

_PACE_WEIGHT = 0.2
"""Weight of the latest batch in the pace that waits are estimated by. Chosen."""

_LOGGER = logging.getLogger("turnscore.batching")


class Batcher:
    """The queue and the lanes of one scorer. Belongs to one event loop; inference runs in a stage of its own."""

    def __init__(self, loaded: LoadedScorer, settings: BatchingSettings, watch: ExecutorWatch | None = None) -> None:
        self._loaded = loaded
        self._lanes = loaded.concurrency.lanes
        self._model = metrics.model_label(loaded.bundle.manifest.reference)
        out_of_memory = metrics.OUT_OF_MEMORY.labels(loaded.name)  # 0, from which Prometheus sees the first one rise
        self._limit = TokenLimit(settings.max_batch_tokens or loaded.budget.most_tokens, out_of_memory.inc)
        waste = loaded.budget.waste
        self._queue = BatchQueue(loaded.budget, replace(waste, most=settings.max_padding_ratio or waste.most))
        self._stage = SupervisedExecutor(loaded.name, self._lanes, loaded.prove, watch)
        self._running: set[int] = set()
        self._pace: float | None = None
        """Seconds a lane takes for one token."""
        self._numbers = count()
        self._is_pump_due = False
        self._is_stopped = False
        self._is_replaced = False
        self._idle = asyncio.Event()
        self._idle.set()
        metrics.CONCURRENT_BATCHES.labels(loaded.name).set(self._lanes)
        self._queue_changed()
        self._running_changed()

    def submit(self, pack: TokenPack, deadline: Deadline | None = None) -> "asyncio.Future[PackScores]":
        """Queues one pack. Cancelling the future takes it out again.

        The future raises DeadlineExceededError when the deadline, if there is one, passes first, FailedScoringError
        where the runtime fails on this turn, OverloadedError where its device has no memory for it, NotReadyError after
        `stop`.
        """
        if self._is_stopped:
            raise NotReadyError("the service is shutting down")
        loop = asyncio.get_running_loop()
        entry = QueuedPack(pack, next(self._numbers), CALLER.get().share, loop.create_future())
        if deadline is not None:
            entry.timer = loop.call_later(max(0.0, deadline.remaining_seconds()), expire, entry.future)
        self._queue.add(entry)
        self._queue_changed()
        self._idle.clear()
        self._call_pump(loop)
        return entry.future

    @property
    def waiting(self) -> int:
        """Packs that wait for a lane."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Batches in the runtime."""
        return len(self._running)

    def seconds_per_token(self) -> float | None:
        """Seconds that one more token adds to the queue, at the latest pace; None before the first batch."""
        return None if self._pace is None else self._pace / self._lanes

    async def stop(self) -> None:
        """Refuses further turns and returns when the last queued one is answered."""
        self._is_stopped = True
        await self._idle.wait()

    def close(self) -> None:
        """Ends the stage; waiting work is dropped."""
        self._stage.close()

    def hand_gauges_over(self) -> None:
        """Leaves the scorer's gauges to the batcher of another version, which is made next."""
        self._is_replaced = True

    def retire(self) -> None:
        """As `SupervisedExecutor.retire`."""
        self._stage.retire()

    def _call_pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """One tick later, so that the turns of one request meet in one batch."""
        if len(self._running) < self._lanes and not self._is_pump_due:
            self._is_pump_due = True
            loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        self._settle(self._queue.drop_departed())
        while self._queue and len(self._running) < self._lanes:
            self._start(self._queue.take_batch(self._limit.tokens, self._lanes - len(self._running)))
        self._queue_changed()
        if not self._queue and not self._running:
            self._idle.set()

    def _start(self, batch: Sequence[QueuedPack]) -> None:
        started_at = time.monotonic()
        number = batch[0].number
        self._running.add(number)
        self._observe(batch, started_at)
        work = self._stage.run(self._score_timed, [entry.pack for entry in batch])
        work.add_done_callback(lambda done: self._deliver(batch, number, started_at, done))

    def _deliver(
        self,
        batch: Sequence[QueuedPack],
        number: int,
        started_at: float,
        done: "asyncio.Future[tuple[list[PackResult], float]]",
    ) -> None:
        self._running.discard(number)
        error = done.exception()
        if error is not None:
            _fail(batch, error)
        else:
            results, seconds = done.result()
            metrics.INFERENCE_SECONDS.labels(self._loaded.name).observe(seconds)
            self._learn(seconds / sum(entry.real for entry in batch))
            for entry, result in zip(batch, results, strict=True):
                if entry.future.done():
                    metrics.WASTED_ITEMS.labels(self._loaded.name).inc(len(entry.pack.answers))
                elif isinstance(result, Exception):
                    _fail([entry], result)
                else:
                    entry.future.set_result(PackScores(result, started_at - entry.arrived_at, seconds))
        self._settle(batch)
        self._running_changed()
        self._call_pump(asyncio.get_running_loop())

    def _learn(self, seconds_per_token: float) -> None:
        known = seconds_per_token if self._pace is None else self._pace
        self._pace = known + _PACE_WEIGHT * (seconds_per_token - known)

    def _running_changed(self) -> None:
        if not self._is_replaced:
            metrics.RUNNING_BATCHES.labels(self._loaded.name).set(len(self._running))

    def _queue_changed(self) -> None:
        if self._is_replaced:
            return
        metrics.QUEUED_ITEMS.labels(self._loaded.name).set(len(self._queue))
        metrics.QUEUED_TOKENS.labels(self._loaded.name).set(self._queue.tokens)

    def _score_timed(self, packs: Sequence[TokenPack]) -> tuple[list[PackResult], float]:
        started_at = time.perf_counter()
        results = score_isolating(self._loaded, packs, self._limit)
        return results, time.perf_counter() - started_at

    def _observe(self, batch: Sequence[QueuedPack], started_at: float) -> None:
        name = self._loaded.name
        waits = metrics.QUEUE_SECONDS.labels(name)
        for entry in batch:
            waits.observe(started_at - entry.arrived_at)
        padded = sum(entry.rows for entry in batch) * max(entry.padded_width for entry in batch)
        metrics.BATCH_ITEMS.labels(name).observe(sum(len(entry.pack.answers) for entry in batch))
        metrics.BATCH_TOKENS.labels(name).observe(padded)
        metrics.BATCH_PADDING.labels(name).observe(1 - sum(entry.real for entry in batch) / padded)
        self._running_changed()

    def _settle(self, entries: Sequence[QueuedPack]) -> None:
        """Counts what became of packs that are over; called once for each."""
        outcomes: Counter[str] = Counter()
        for entry in entries:
            if entry.timer is not None:
                entry.timer.cancel()
            if entry.future.cancelled():
                outcomes["departed"] += len(entry.pack.answers)
            elif error := entry.future.exception():
                outcome = "expired" if isinstance(error, DeadlineExceededError) else "failed"
                outcomes[outcome] += len(entry.pack.answers)
            else:
                for raw in entry.future.result().raw:
                    outcomes["scored" if isinstance(raw, RawScore) else "failed"] += 1
        for outcome, turns in outcomes.items():
            metrics.ITEMS.labels(self._loaded.name, self._model, outcome).inc(turns)


def _fail(entries: Sequence[QueuedPack], cause: BaseException) -> None:
    error = to_scoring_error(cause)
    for entry in entries:
        _LOGGER.error(
            "scoring failed: %s", type(cause).__name__, exc_info=cause, extra={"request_id": entry.request_id}
        )
        if not entry.future.done():
            entry.future.set_exception(error)


def expire(future: "asyncio.Future[PackScores]") -> None:
    """Takes a pack out of the queue because its time ran out; does nothing if it was answered."""
    if not future.done():
        future.set_exception(DeadlineExceededError("the deadline passed before the turn was scored"))
