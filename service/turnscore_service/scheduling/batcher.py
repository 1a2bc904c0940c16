"""Batching: token-budget batches of similar width, one queue per scorer. Answers every caller, always.

A batch starts as soon as fewer run than may: there is no wait window, and what is queued is dealt out evenly to
those that may start.
The turn whose time has come (fairness.py; a single caller's oldest) is in the next batch, and every few batches the
oldest of all, so no turn waits for ever; its neighbours in width fill the budget. A turn whose caller left
or ran out of time is taken out before inference. A batch that fails is halved until the failing turn stands alone;
where memory ended, the halves are scored and the batches that follow are smaller.
"""

import asyncio
import logging
import math
import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from operator import attrgetter

from turnscore_core.batches import BatchBudget, SizedPack, TokenLimit, WasteLimit, grow_batch, to_scoring_error
from turnscore_core.errors import DeadlineExceededError, FailedScoringError, NotReadyError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_core.scoring import Deadline, PackResult, score_isolating

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER
from turnscore_service.log_setup import REQUEST_ID
from turnscore_service.scheduling.executor import ExecutorWatch, SupervisedExecutor
from turnscore_service.scheduling.fairness import FairOrder
from turnscore_service.settings.service import BatchingSettings

# While several callers wait, who has little queued need not wait for a full batch of the others': its batch is filled
# to an equal part for each, but at least to this part of the budget, below which batches cost more than they save.
_LEAST_SHARE = 8

_OLDEST_EVERY = 8  # while several callers wait, one batch in so many begins with the oldest turn of all

_PACE_WEIGHT = 0.2  # weight of the latest batch in the pace that waits are estimated by

_ORDER, _NUMBER = attrgetter("width", "number"), attrgetter("number")

_LOGGER = logging.getLogger("turnscore.batching")


@dataclass(slots=True)
class PackScores:
    """The raw scores of a pack's answers, a failed one in its error's form, and where its time went."""

    raw: tuple[RawScore | FailedScoringError, ...]
    queue_seconds: float
    inference_seconds: float


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedPack(SizedPack):
    """One pack in the queue, whose it is, and the future that its caller waits for."""

    turns: int
    number: int
    caller: str
    future: "asyncio.Future[PackScores]"
    request_id: str | None
    arrived_at: float
    timer: asyncio.TimerHandle | None = None


class BatchQueue:
    """Packs that wait, and which of them make the next batch. Belongs to one event loop.

    What a batch costs to take depends on its own packs, not on all that wait.
    """

    def __init__(self, budget: BatchBudget, waste: WasteLimit) -> None:
        self._budget = budget
        self._waste = waste
        self.by_width: list[QueuedPack] = []  # all that waits, the narrowest first
        # Each caller's packs by number, the oldest first; callers with none are left out.
        self._by_caller: dict[str, dict[int, QueuedPack]] = {}
        self._tokens_by_caller: dict[str, int] = {}
        self._order = FairOrder()
        self._batches = 0
        self._padded = 0
        self.tokens = 0  # without padding

    def add(self, entry: QueuedPack) -> None:
        """Puts it where its width belongs."""
        if entry.caller not in self._by_caller:
            self._by_caller[entry.caller] = {}
            self._tokens_by_caller[entry.caller] = 0
            self._order.join(entry.caller)
        insort(self.by_width, entry, key=_ORDER)
        self._by_caller[entry.caller][entry.number] = entry
        self._tokens_by_caller[entry.caller] += entry.real
        self.tokens += entry.real
        self._padded += entry.padded

    def drop_departed(self) -> list[QueuedPack]:
        """Takes out the packs that no caller waits for any more."""
        departed = [entry for entry in self.by_width if entry.future.done()]
        if departed:
            self.by_width = [entry for entry in self.by_width if not entry.future.done()]
            for entry in departed:
                self._forget(entry)
        return departed

    def take_batch(self, most_tokens: int, idle_slots: int) -> list[QueuedPack]:
        """Takes out the pack whose time has come and those nearest to it in width, as budget and waste allow."""
        self._batches += 1
        chosen = self._order.choose(self._by_caller)
        if self._batches % _OLDEST_EVERY == 0:  # lest callers who come once each starve it
            first = min([next(iter(own.values())) for own in self._by_caller.values()], key=_NUMBER)
        else:
            first = next(iter(self._by_caller[chosen].values()))
        place = bisect_left(self.by_width, _ORDER(first), key=_ORDER)
        share = math.ceil(self._padded / idle_slots) if idle_slots > 1 else math.inf
        budget = min(most_tokens, max(self._budget.least_split_tokens, share))
        if len(self._by_caller) > 1:
            equal = len(self._by_caller) * self._tokens_by_caller[first.caller]
            budget = min(budget, max(equal, most_tokens // _LEAST_SHARE))
        low, high = grow_batch(self.by_width, place, budget, self._waste)
        batch = self.by_width[low:high]
        del self.by_width[low:high]
        for entry in batch:
            self._forget(entry)
            self._order.charge(entry.caller, entry.real)
        return batch

    def _forget(self, entry: QueuedPack) -> None:
        own = self._by_caller[entry.caller]
        del own[entry.number]
        self._tokens_by_caller[entry.caller] -= entry.real
        if not own:
            del self._by_caller[entry.caller], self._tokens_by_caller[entry.caller]
        self.tokens -= entry.real
        self._padded -= entry.padded


class Batcher:
    """The queue and the running batches of one scorer. Belongs to one event loop; inference runs in threads."""

    def __init__(self, loaded: LoadedScorer, settings: BatchingSettings, watch: ExecutorWatch | None = None) -> None:
        self._loaded = loaded
        self._concurrent_batches = loaded.concurrency.batches
        self._model = metrics.model_label(loaded.model)
        out_of_memory = metrics.OUT_OF_MEMORY.labels(loaded.name)  # 0, from which Prometheus sees the first one rise
        self._limit = TokenLimit(settings.max_batch_tokens or loaded.budget.most_tokens, out_of_memory.inc)
        waste = loaded.budget.waste
        self._queue = BatchQueue(loaded.budget, replace(waste, most=settings.max_padding_ratio or waste.most))
        self._stage = SupervisedExecutor(loaded.name, self._concurrent_batches, loaded.run_sample, watch)
        self.running = 0  # batches in the runtime
        self._pace: float | None = None  # seconds a slot takes for one token
        self._numbers = count()
        self._is_start_due = False
        self._is_stopped = False
        self._is_replaced = False
        self._idle = asyncio.Event()
        name = loaded.name
        metrics.CONCURRENT_BATCHES.labels(name).set(self._concurrent_batches)
        self._queued_items = metrics.QUEUED_ITEMS.labels(name)
        self._queued_tokens = metrics.QUEUED_TOKENS.labels(name)
        self._running_batches = metrics.RUNNING_BATCHES.labels(name)
        self._queue_seconds = metrics.QUEUE_SECONDS.labels(name)
        self._batch_items = metrics.BATCH_ITEMS.labels(name)
        self._batch_tokens = metrics.BATCH_TOKENS.labels(name)
        self._batch_padding = metrics.BATCH_PADDING.labels(name)
        self._inference_seconds = metrics.INFERENCE_SECONDS.labels(name)
        self._start_batches()  # which sets the gauges

    def submit(self, pack: TokenPack, deadline: Deadline | None = None) -> "asyncio.Future[PackScores]":
        """Queues one pack. Cancelling the future takes it out again.

        The future raises DeadlineExceededError when the deadline, if there is one, passes first, FailedScoringError
        where the runtime fails on this turn, OverloadedError where its device has no memory for it, NotReadyError after
        `stop`.
        """
        if self._is_stopped:
            raise NotReadyError("the service is shutting down")
        loop = asyncio.get_running_loop()
        entry = QueuedPack(
            pack,
            turns=1 if pack.scorers else len(pack.answers),  # what is asked of it by several scorers is one turn
            number=next(self._numbers),
            caller=CALLER.get().share,
            future=loop.create_future(),
            request_id=REQUEST_ID.get(),
            arrived_at=time.monotonic(),
        )
        if deadline is not None:
            entry.timer = loop.call_later(max(0.0, deadline.remaining_seconds()), expire, entry.future)
        self._queue.add(entry)
        self._idle.clear()
        self._start_batches_soon()
        return entry.future

    @property
    def waiting(self) -> int:
        """Packs that wait for a slot."""
        return len(self._queue.by_width)

    def seconds_per_token(self) -> float | None:
        """Seconds that one more token adds to the queue, at the latest pace; None before the first batch."""
        return None if self._pace is None else self._pace / self._concurrent_batches

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

    def _start_batches_soon(self) -> None:
        """One tick later, so that the turns of one request meet in one batch."""
        if not self._is_start_due:
            self._is_start_due = True
            asyncio.get_running_loop().call_soon(self._start_batches)

    def _start_batches(self) -> None:
        self._is_start_due = False
        if self._queue.by_width and self.running < self._concurrent_batches:
            if departed := self._queue.drop_departed():
                self._settle(departed)
            while self._queue.by_width and self.running < self._concurrent_batches:
                self._start(self._queue.take_batch(self._limit.tokens, self._concurrent_batches - self.running))
        if not self._is_replaced:
            self._queued_items.set(len(self._queue.by_width))
            self._queued_tokens.set(self._queue.tokens)
            self._running_batches.set(self.running)
        if not self._queue.by_width and not self.running:
            self._idle.set()

    def _start(self, batch: Sequence[QueuedPack]) -> None:
        started_at = time.monotonic()
        self.running += 1
        rows = widest = real = items = scored = 0
        for entry in batch:
            self._queue_seconds.observe(started_at - entry.arrived_at)
            rows, widest = rows + entry.rows, max(widest, entry.padded_width)
            real, items = real + entry.real, items + entry.turns
            scored += entry.real if entry.pack.answers else 0
        if items:  # a batch that only reads ahead has none
            self._batch_items.observe(items)
        self._batch_tokens.observe(rows * widest)
        self._batch_padding.observe(1 - real / (rows * widest))
        work = self._stage.run(self._score_timed, [entry.pack for entry in batch])
        work.add_done_callback(partial(self._deliver, batch, scored, started_at))

    def _deliver(
        self,
        batch: Sequence[QueuedPack],
        tokens: int,
        started_at: float,
        done: "asyncio.Future[tuple[list[PackResult], float]]",
    ) -> None:
        self.running -= 1
        if error := done.exception():
            _fail(batch, error)
        else:
            results, seconds = done.result()
            self._inference_seconds.observe(seconds)
            if tokens:  # what is read ahead may be kept already, and says nothing of the pace
                pace = seconds / tokens
                self._pace = pace if self._pace is None else self._pace + _PACE_WEIGHT * (pace - self._pace)
            for entry, result in zip(batch, results, strict=True):
                if entry.future.done():
                    metrics.WASTED_ITEMS.labels(self._loaded.name).inc(entry.turns)
                elif isinstance(result, Exception):
                    _fail([entry], result)
                else:
                    entry.future.set_result(PackScores(result, started_at - entry.arrived_at, seconds))
        self._settle(batch)
        self._start_batches_soon()

    def _score_timed(self, packs: Sequence[TokenPack]) -> tuple[list[PackResult], float]:
        started_at = time.perf_counter()
        results = score_isolating(self._loaded, packs, self._limit)
        return results, time.perf_counter() - started_at

    def _settle(self, entries: Sequence[QueuedPack]) -> None:
        """Counts what became of packs that are over; called once for each."""
        outcomes: Counter[str] = Counter()
        for entry in entries:
            if entry.timer is not None:
                entry.timer.cancel()
            if entry.future.cancelled():
                outcomes["departed"] += entry.turns
            elif error := entry.future.exception():
                outcome = "expired" if isinstance(error, DeadlineExceededError) else "failed"
                outcomes[outcome] += entry.turns
            else:
                for raw in entry.future.result().raw[: entry.turns]:
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
