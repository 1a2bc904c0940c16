"""Batching: token-budget batches of similar width, one queue per scorer. Answers every caller, always.

An idle lane starts at once: there is no wait window, and what is queued is dealt out evenly to the lanes that are idle.
The turn whose time has come (fair_shares.py; a single caller's oldest) is in the next batch, and every few batches the
oldest of all, so nobody waits behind others for ever; its neighbours in width fill the budget. A turn whose caller left
or ran out of time is taken out before inference. A batch that fails is halved until the failing turn stands alone;
where memory ended, the halves are scored and the batches that follow are smaller.
"""

import asyncio
import functools
import logging
import math
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from turnscore_service import metrics
from turnscore_service.deadline import Deadline
from turnscore_service.errors import (
    DeadlineExceededError,
    FailedScoringError,
    NotReadyError,
    OverloadedError,
    ScoringError,
)
from turnscore_service.inference.batch_budget import TokenLimit
from turnscore_service.inference.onnx_backend import OutOfMemoryError
from turnscore_service.keys.callers import CALLER
from turnscore_service.log_setup import REQUEST_ID
from turnscore_service.path.batch_growth import BatchSize, grow_batch, padded_tokens
from turnscore_service.path.fair_shares import FairOrder
from turnscore_service.path.stages import Stage, StageWatch
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import RawScore, TokenPack
from turnscore_service.settings.service import BatchingSettings

_PackResult = tuple[RawScore | FailedScoringError, ...] | Exception

_PACE_WEIGHT = 0.2
"""Weight of the latest batch in the pace that waits are estimated by. Chosen."""

_LEAST_SHARE = 8
"""While several callers wait, who has little queued need not wait for a full batch of the others': its batch is filled
to an equal part for each, but at least to this part of the budget, below which batches cost more than they save.
Chosen."""

_OLDEST_EVERY = 8
"""While several callers wait, one batch in so many begins with the oldest turn of all. Chosen."""

_MEMORY_RETRY_MS = 1000
"""Seconds after which other processes may have given memory back. Chosen."""

_LOGGER = logging.getLogger("turnscore.batching")


@dataclass(frozen=True, slots=True)
class PackScores:
    """The raw scores of a pack's answers, a failed one in its error's form, and where its time went."""

    raw: tuple[RawScore | FailedScoringError, ...]
    queue_seconds: float
    inference_seconds: float


@dataclass(slots=True, eq=False, kw_only=True)
class _Entry:
    pack: TokenPack
    number: int
    caller: str
    future: "asyncio.Future[PackScores]"
    timer: asyncio.TimerHandle
    request_id: str | None = field(default_factory=REQUEST_ID.get)
    arrived_at: float = field(default_factory=time.monotonic)

    @property
    def order(self) -> tuple[int, int]:
        return self.pack.width, self.number


class Batcher:
    """The queue and the lanes of one scorer. Belongs to one event loop; inference runs in a stage of its own."""

    def __init__(self, loaded: LoadedScorer, settings: BatchingSettings, watch: StageWatch | None = None) -> None:
        self._loaded = loaded
        self._lanes = loaded.concurrency.lanes
        self._limit = TokenLimit(settings.max_batch_tokens or loaded.budget.most_tokens)
        waste = loaded.budget.waste
        self._waste = replace(waste, most=settings.max_waste or waste.most)
        self._stage = Stage(loaded.name, self._lanes, loaded.prove, watch)
        self._by_width: list[_Entry] = []
        self._queued_tokens = 0
        self._order = FairOrder()
        self._waiting: Counter[str] = Counter()
        """Tokens in the queue, by caller."""
        self._batches = 0
        self._running: set[int] = set()
        self._pace: float | None = None
        """Seconds a lane takes for one token."""
        self._numbers = count()
        self._is_pump_due = False
        self._is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        metrics.LANES.labels(loaded.name).set(self._lanes)

    def submit(self, pack: TokenPack, deadline: Deadline) -> "asyncio.Future[PackScores]":
        """Queues one pack. Cancelling the future takes it out again.

        The future raises DeadlineExceededError when the deadline passes first, FailedScoringError where the runtime
        fails on this turn, OverloadedError where its device has no memory for it, NotReadyError after `stop`.
        """
        if self._is_stopped:
            raise NotReadyError("the service is shutting down")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PackScores] = loop.create_future()
        timer = loop.call_later(max(0.0, deadline.remaining_seconds()), expire, future)
        caller = CALLER.get().share
        if caller not in self._waiting:
            self._order.join(caller)
        entry = _Entry(pack=pack, number=next(self._numbers), caller=caller, future=future, timer=timer)
        future.add_done_callback(lambda _: self._settle(entry))
        insort(self._by_width, entry, key=lambda each: each.order)
        self._queue_changed([entry], 1)
        self._idle.clear()
        self._call_pump(loop)
        return future

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

    def _call_pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """One tick later, so that the turns of one request meet in one batch."""
        if len(self._running) < self._lanes and not self._is_pump_due:
            self._is_pump_due = True
            loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        self._drop_departed()
        while self._by_width and len(self._running) < self._lanes:
            self._start(self._take_batch())
        if not self._by_width and not self._running:
            self._idle.set()

    def _start(self, batch: Sequence[_Entry]) -> None:
        started_at = time.monotonic()
        number = batch[0].number
        self._running.add(number)
        self._observe(batch, started_at)
        work = self._stage.run(self._score_timed, [entry.pack for entry in batch])
        work.add_done_callback(lambda done: self._deliver(batch, number, started_at, done))

    def _deliver(
        self,
        batch: Sequence[_Entry],
        number: int,
        started_at: float,
        done: "asyncio.Future[tuple[list[_PackResult], float]]",
    ) -> None:
        self._running.discard(number)
        error = done.exception()
        if error is not None:
            _fail(batch, error)
        else:
            results, seconds = done.result()
            metrics.INFERENCE_SECONDS.labels(self._loaded.name).observe(seconds)
            self._learn(seconds / sum(entry.pack.real_tokens for entry in batch))
            for entry, result in zip(batch, results, strict=True):
                if entry.future.done():
                    metrics.WASTED_ITEMS.labels(self._loaded.name).inc(len(entry.pack.answers))
                elif isinstance(result, Exception):
                    _fail([entry], result)
                else:
                    entry.future.set_result(PackScores(result, started_at - entry.arrived_at, seconds))
        metrics.RUNNING_BATCHES.labels(self._loaded.name).set(len(self._running))
        self._call_pump(asyncio.get_running_loop())

    def _learn(self, seconds_per_token: float) -> None:
        known = seconds_per_token if self._pace is None else self._pace
        self._pace = known + _PACE_WEIGHT * (seconds_per_token - known)

    def _drop_departed(self) -> None:
        departed = [entry for entry in self._by_width if entry.future.done()]
        self._by_width = [entry for entry in self._by_width if not entry.future.done()]
        self._queue_changed(departed, -1)

    def _take_batch(self) -> list[_Entry]:
        """Takes out the turn whose time has come and those nearest to it in width, as budget and waste allow."""
        first = self._choose_first()
        place = bisect_left(self._by_width, first.order, key=lambda entry: entry.order)
        idle_lanes = self._lanes - len(self._running)
        share = (
            math.ceil(sum(padded_tokens(entry.pack) for entry in self._by_width) / idle_lanes)
            if idle_lanes > 1
            else math.inf
        )
        budget = min(self._limit.tokens, max(self._loaded.budget.least_split_tokens, share))
        if len(self._waiting) > 1:
            equal = len(self._waiting) * self._waiting[first.caller]
            budget = min(budget, max(equal, self._limit.tokens // _LEAST_SHARE))
        low, high = grow_batch([entry.pack for entry in self._by_width], place, budget, self._waste)
        batch = self._by_width[low:high]
        del self._by_width[low:high]
        self._queue_changed(batch, -1)
        for entry in batch:
            self._order.charge(entry.caller, entry.pack.real_tokens)
        return batch

    def _choose_first(self) -> _Entry:
        """The oldest turn of whose turn it is; at intervals of all, lest callers who come once each starve it."""
        self._batches += 1
        chosen = self._order.choose(self._waiting)
        if len(self._waiting) == 1 or self._batches % _OLDEST_EVERY == 0:
            return min(self._by_width, key=lambda entry: entry.number)
        return min((entry for entry in self._by_width if entry.caller == chosen), key=lambda entry: entry.number)

    def _queue_changed(self, entries: Sequence[_Entry], sign: int) -> None:
        for entry in entries:
            self._queued_tokens += sign * entry.pack.real_tokens
            self._waiting[entry.caller] += sign * entry.pack.real_tokens
            if not self._waiting[entry.caller]:
                del self._waiting[entry.caller]
        metrics.QUEUED_ITEMS.labels(self._loaded.name).set(len(self._by_width))
        metrics.QUEUED_TOKENS.labels(self._loaded.name).set(self._queued_tokens)

    def _score_timed(self, packs: Sequence[TokenPack]) -> tuple[list[_PackResult], float]:
        started_at = time.perf_counter()
        results = self._score_isolating(packs)
        return results, time.perf_counter() - started_at

    def _score_isolating(self, packs: Sequence[TokenPack]) -> list[_PackResult]:
        try:
            scores = self._loaded.scorer.score(packs)
            wanted = sum(len(pack.answers) for pack in packs)
            if len(scores) != wanted:
                raise FailedScoringError(f"{self._loaded.name} answered {len(scores)} of {wanted} turns")
        except Exception as error:
            if isinstance(error, OutOfMemoryError):
                metrics.OUT_OF_MEMORY.labels(self._loaded.name).inc()
                self._limit.shrink(sum(map(padded_tokens, packs)))
            if len(packs) == 1:
                return [error]
            middle = len(packs) // 2
            return self._score_isolating(packs[:middle]) + self._score_isolating(packs[middle:])
        self._limit.recover()
        in_order = iter(scores)
        return [tuple(self._refuse_nan(next(in_order)) for _ in pack.answers) for pack in packs]

    def _refuse_nan(self, score: RawScore) -> RawScore | FailedScoringError:
        if all(map(math.isfinite, (score.value, *score.details.values()))):
            return score
        return FailedScoringError(f"{self._loaded.name} gave a score that is not a number")

    def _observe(self, batch: Sequence[_Entry], started_at: float) -> None:
        name = self._loaded.name
        for entry in batch:
            metrics.QUEUE_SECONDS.labels(name).observe(started_at - entry.arrived_at)
        size = functools.reduce(BatchSize.plus, (entry.pack for entry in batch), BatchSize())
        metrics.BATCH_ITEMS.labels(name).observe(sum(len(entry.pack.answers) for entry in batch))
        metrics.BATCH_TOKENS.labels(name).observe(size.padded)
        metrics.BATCH_PADDING.labels(name).observe(1 - size.real / size.padded)
        metrics.RUNNING_BATCHES.labels(name).set(len(self._running))

    def _settle(self, entry: _Entry) -> None:
        """Counts the outcome of a pack's turns; called once."""
        entry.timer.cancel()
        if entry.future.cancelled():
            outcomes = ["departed"] * len(entry.pack.answers)
        elif error := entry.future.exception():
            outcome = "expired" if isinstance(error, DeadlineExceededError) else "failed"
            outcomes = [outcome] * len(entry.pack.answers)
        else:
            outcomes = ["scored" if isinstance(raw, RawScore) else "failed" for raw in entry.future.result().raw]
        for outcome in outcomes:
            metrics.ITEMS.labels(self._loaded.name, self._loaded.bundle.manifest.reference, outcome).inc()


def _fail(entries: Sequence[_Entry], cause: BaseException) -> None:
    error = _tell(cause)
    for entry in entries:
        _LOGGER.error(
            "scoring failed: %s", type(cause).__name__, exc_info=cause, extra={"request_id": entry.request_id}
        )
        if not entry.future.done():
            entry.future.set_exception(error)


def _tell(cause: BaseException) -> ScoringError:
    """The error as its callers get it."""
    if isinstance(cause, FailedScoringError):
        return cause
    if isinstance(cause, OutOfMemoryError):
        return OverloadedError("the device has no memory left for this turn", retry_after_ms=_MEMORY_RETRY_MS)
    return FailedScoringError("the model failed on this turn")


def expire(future: "asyncio.Future[PackScores]") -> None:
    """Takes a pack out of the queue because its time ran out; does nothing if it was answered."""
    if not future.done():
        future.set_exception(DeadlineExceededError("the deadline passed before the turn was scored"))
