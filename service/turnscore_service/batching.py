"""Batching: token-budget batches of similar width, one queue a scorer. Answers every caller, always.

An idle runtime starts at once: there is no wait window. The oldest turn is in every batch, so nobody waits behind
wider turns for ever; its neighbours in width fill the budget. A turn whose caller left or ran out of time is taken
out before inference. A batch that fails is halved until the failing turn stands alone.
"""

import asyncio
import functools
import logging
import math
import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import count

from turnscore_service import metrics
from turnscore_service.deadline import Deadline
from turnscore_service.errors import DeadlineExceededError, FailedScoringError, NotReadyError
from turnscore_service.inference.packing import padded_width
from turnscore_service.log_setup import REQUEST_ID
from turnscore_service.scorers.loading import LoadedScorer
from turnscore_service.scorers.scorer import RawScore, TokenPack
from turnscore_service.settings import BatchingSettings

_PackResult = tuple[RawScore | FailedScoringError, ...] | Exception

_LOGGER = logging.getLogger("turnscore.batching")


@dataclass(frozen=True, slots=True)
class PackScores:
    """The raw scores of a pack's answers, a failed one in its error's form, and where its time went."""

    raw: tuple[RawScore | FailedScoringError, ...]
    queue_seconds: float
    inference_seconds: float


@dataclass(slots=True, eq=False)
class _Entry:
    pack: TokenPack
    number: int
    future: "asyncio.Future[PackScores]"
    timer: asyncio.TimerHandle
    request_id: str | None = field(default_factory=REQUEST_ID.get)
    arrived_at: float = field(default_factory=time.monotonic)

    @property
    def order(self) -> tuple[int, int]:
        return self.pack.width, self.number


class Batcher:
    """The queue and the batches of one scorer. Belongs to one event loop; inference runs in `executor`."""

    def __init__(self, loaded: LoadedScorer, settings: BatchingSettings, executor: Executor) -> None:
        self._loaded = loaded
        self._settings = settings
        self._executor = executor
        self._by_width: list[_Entry] = []
        self._numbers = count()
        self._is_running = False
        self._is_pump_due = False
        self._is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, pack: TokenPack, deadline: Deadline) -> "asyncio.Future[PackScores]":
        """Queues one pack. Cancelling the future takes it out again.

        The future raises DeadlineExceededError when the deadline passes first, FailedScoringError where the runtime
        fails on this turn, NotReadyError after `stop`.
        """
        if self._is_stopped:
            raise NotReadyError("the service is shutting down")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[PackScores] = loop.create_future()
        timer = loop.call_later(max(0.0, deadline.remaining_seconds()), _expire, future)
        entry = _Entry(pack, next(self._numbers), future, timer)
        future.add_done_callback(lambda _: self._settle(entry))
        insort(self._by_width, entry, key=lambda each: each.order)
        metrics.QUEUED_ITEMS.labels(self._loaded.name).set(len(self._by_width))
        self._idle.clear()
        self._call_pump(loop)
        return future

    async def stop(self) -> None:
        """Refuses further turns and returns when the last queued one is answered."""
        self._is_stopped = True
        await self._idle.wait()

    def _call_pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """One tick later, so that the turns of one request meet in one batch."""
        if not self._is_running and not self._is_pump_due:
            self._is_pump_due = True
            loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        if self._is_running:
            return
        batch = self._take_batch()
        if not batch:
            self._idle.set()
            return
        started_at = time.monotonic()
        self._observe(batch, started_at)
        try:
            work = asyncio.get_running_loop().run_in_executor(
                self._executor, self._score_timed, [entry.pack for entry in batch]
            )
        except RuntimeError as error:  # the executor was shut down
            _fail(batch, error)
            self._call_pump(asyncio.get_running_loop())
            return
        self._is_running = True
        work.add_done_callback(lambda done: self._deliver(batch, started_at, done))

    def _deliver(
        self,
        batch: Sequence[_Entry],
        started_at: float,
        done: "asyncio.Future[tuple[list[_PackResult], float]]",
    ) -> None:
        self._is_running = False
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            _fail(batch, error or RuntimeError("inference was cancelled"))
        else:
            results, seconds = done.result()
            metrics.INFERENCE_SECONDS.labels(self._loaded.name).observe(seconds)
            for entry, result in zip(batch, results, strict=True):
                if isinstance(result, Exception):
                    _fail([entry], result)
                elif not entry.future.done():
                    entry.future.set_result(PackScores(result, started_at - entry.arrived_at, seconds))
        self._call_pump(asyncio.get_running_loop())

    def _take_batch(self) -> list[_Entry]:
        """Takes out the oldest turn and those nearest to it in width, as many as budget and padding allow."""
        self._by_width = [entry for entry in self._by_width if not entry.future.done()]
        if not self._by_width:
            return []
        oldest = min(self._by_width, key=lambda entry: entry.number)
        place = bisect_left(self._by_width, oldest.order, key=lambda entry: entry.order)
        low, high = grow_batch([entry.pack for entry in self._by_width], place, self._settings)
        batch = self._by_width[low:high]
        del self._by_width[low:high]
        return batch

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
            if len(packs) == 1:
                return [error]
            middle = len(packs) // 2
            return self._score_isolating(packs[:middle]) + self._score_isolating(packs[middle:])
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
        size = functools.reduce(_Size.plus, (entry.pack for entry in batch), _Size())
        metrics.BATCH_ITEMS.labels(name).observe(sum(len(entry.pack.answers) for entry in batch))
        metrics.BATCH_TOKENS.labels(name).observe(size.padded)
        metrics.BATCH_PADDING.labels(name).observe(1 - size.real / size.padded)
        metrics.QUEUED_ITEMS.labels(name).set(len(self._by_width))

    def _settle(self, entry: _Entry) -> None:
        """Counts what became of a pack's turns; called once, whatever that is."""
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


def grow_batch(packs: Sequence[TokenPack], place: int, settings: BatchingSettings) -> tuple[int, int]:
    """The slice of `packs`, sorted by width, that makes the largest allowed batch around the one at `place`.

    Takes the nearest in width first, on either side, while padded tokens and padding share stay within the settings.
    """
    width = packs[place].width
    size = _Size().plus(packs[place])
    low, high = place, place + 1
    can_go_down, can_go_up = True, True
    while can_go_down or can_go_up:
        gap_below = width - packs[low - 1].width if can_go_down and low > 0 else math.inf
        gap_above = packs[high].width - width if can_go_up and high < len(packs) else math.inf
        if math.isinf(min(gap_below, gap_above)):
            break
        goes_down = gap_below <= gap_above
        grown = size.plus(packs[low - 1 if goes_down else high])
        if grown.fits(settings):
            size, low, high = grown, low - goes_down, high + (not goes_down)
        elif goes_down:
            can_go_down = False
        else:
            can_go_up = False
    return low, high


@dataclass(frozen=True, slots=True)
class _Size:
    """Rows and longest row of a batch, its tokens without padding, and what its packs would cost one by one."""

    rows: int = 0
    width: int = 0
    real: int = 0
    alone: int = 0

    @property
    def padded(self) -> int:
        return self.rows * padded_width(self.width)

    def plus(self, pack: TokenPack) -> "_Size":
        rows = len(pack.rows)
        alone = self.alone + rows * padded_width(pack.width)
        return _Size(self.rows + rows, max(self.width, pack.width), self.real + pack.real_tokens, alone)

    def fits(self, settings: BatchingSettings) -> bool:
        """Whether the batch is within budget, and not much dearer than its packs one by one."""
        return self.padded <= settings.max_batch_tokens and 1 - self.alone / self.padded <= settings.max_padding_share


def _fail(entries: Sequence[_Entry], cause: BaseException) -> None:
    error = cause if isinstance(cause, FailedScoringError) else FailedScoringError("the model failed on this turn")
    for entry in entries:
        _LOGGER.error(
            "scoring failed: %s", type(cause).__name__, exc_info=cause, extra={"request_id": entry.request_id}
        )
        if not entry.future.done():
            entry.future.set_exception(error)


def _expire(future: "asyncio.Future[PackScores]") -> None:
    if not future.done():
        future.set_exception(DeadlineExceededError("the deadline passed before the turn was scored"))
