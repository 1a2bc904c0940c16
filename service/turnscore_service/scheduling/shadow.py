"""Shadows: candidate versions that score a share of the live turns when nothing else waits, and how they compare."""

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from turnscore_core.batches import Answer, PackCollector, TokenLimit
from turnscore_core.errors import ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TokenPack
from turnscore_core.scoring import Item, Outcome, encode_isolating, score_isolating, scores_of
from turnscore_wire import Label, Score
from turnscore_wire.requests import ScorerChoice

from turnscore_service import metrics
from turnscore_service.scheduling.batcher import Batcher
from turnscore_service.scheduling.executor import ExecutorWatch, SupervisedExecutor
from turnscore_service.scheduling.versions import CandidateVersion

WINDOW_PAIRS = 1000  # pairs that the rank correlation is taken over. Chosen: its standard error is then 0.03 at most
LEAST_PAIRS = 30  # below there is no correlation


class PairWindow:
    """The latest pairs. One thread at a time adds."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[float, float]] = deque(maxlen=WINDOW_PAIRS)

    def add(self, served: float, shadow: float) -> float | None:
        """Takes in one pair; the rank correlation of the pairs, or None while there is none.

        Sorting all of them again takes 0.1 to 0.2 ms, far less than the score that was computed for the pair.
        """
        self._pairs.append((served, shadow))
        return None if len(self._pairs) < LEAST_PAIRS else rank_correlation(np.array(self._pairs))


def rank_correlation(pairs: NDArray[np.float64]) -> float | None:
    """Spearman's rho of the two columns, equal values sharing their mean rank; None where a column is constant."""
    ranks = [_rank(column) for column in pairs.T]
    return float(np.asarray(np.corrcoef(ranks))[0, 1]) if all(map(np.ptp, ranks)) else None


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_ranks: NDArray[np.float64] = last - (counts - 1) / 2
    return mean_ranks[places.ravel()]


# CPUs that a shadow leaves free, of those that callers' batches do not use: one for the next batch to come and one for
# the event loop.
KEPT_CPUS = 2


class Idleness:
    """Of one process with so many CPUs. Belongs to one event loop."""

    def __init__(self, batchers: Sequence[Batcher], has_work: Callable[[], bool], cpus: int) -> None:
        """`has_work` says whether any turn is admitted and not yet answered."""
        self._batchers = batchers
        self._has_work = has_work
        self._spare = cpus - KEPT_CPUS

    def is_idle(self) -> bool:
        """Whether nothing is in flight; where there are CPUs to spare, whether nothing waits and one is unused."""
        if not self._has_work():
            return True
        if any(each.waiting for each in self._batchers):
            return False
        return sum(each.running for each in self._batchers) < self._spare


MOST_WAITING = 64  # turns that wait at most. Chosen: a minute's sample of a turn per second, and little memory
# Characters of the turns that wait, their contexts included, at most. Chosen: as much as one request may carry.
MOST_CHARS = 1_000_000
MOST_SECONDS = 10.0  # how long a turn waits at most. Chosen: no text stays through a long overload
_LOOK_SECONDS = 0.02  # how often waiting turns look whether nothing else waits. Chosen: a look takes microseconds

_Result = TypeVar("_Result")

_LOGGER = logging.getLogger("turnscore.shadow")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shadow:
    loaded: LoadedScorer
    share: float
    served: str  # the model that it is compared with
    window: PairWindow = field(default_factory=PairWindow)

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.loaded.kind, self.loaded.model, self.served


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    shadow: _Shadow
    item: Item
    percentile: float  # of the answer that was given
    label: Label | None
    chars: int
    until: float


class Shadows:
    """The shadows of one process. Belongs to one event loop."""

    def __init__(
        self,
        versions: Sequence[CandidateVersion],
        served: Callable[[str], str],
        is_idle: Callable[[], bool],
        watch: ExecutorWatch | None = None,
    ) -> None:
        """`served` is the model that answers for a scorer's name; `is_idle` whether no caller's work would be delayed.

        `watch` must not report to the process's health: a shadow that hangs harms only itself.
        """
        self._shadows = {
            each.loaded.kind: _Shadow(loaded=each.loaded, share=each.share, served=served(each.loaded.kind))
            for each in versions
        }
        self._is_idle = is_idle
        self._stage = SupervisedExecutor("shadow", 1, self._run_samples, watch)
        self._queue: deque[_Waiting] = deque()
        self._chars = 0
        self._work: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._draw = random.Random().random  # noqa: S311 - draws a sample
        for each in self._shadows.values():
            for outcome in ("compared", "failed", "full", "late"):
                metrics.SHADOW_TURNS.labels(*each.labels, outcome).inc(0)

    def offer(self, item: Item, outcome: Outcome) -> None:
        """Takes the answered turn, or drops it: for each shadow of a served version's score that has a percentile."""
        if self._is_stopped:
            return
        for name, score in outcome.scores.items():
            shadow = self._shadows.get(name)
            if shadow is None or name in item.versions or score.percentile is None or self._draw() >= shadow.share:
                continue
            self._take(shadow, item, score, score.percentile)

    async def stop(self) -> None:
        self._is_stopped = True
        self._queue.clear()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._stage.retire()

    def _take(self, shadow: _Shadow, item: Item, score: Score, percentile: float) -> None:
        chars = len(item.turn.response) + sum(len(turn.text) for turn in item.turn.context)
        if len(self._queue) >= MOST_WAITING or self._chars + chars > MOST_CHARS:
            metrics.SHADOW_TURNS.labels(*shadow.labels, "full").inc()
            return
        self._chars += chars
        self._queue.append(
            _Waiting(
                shadow=shadow,
                # Without the rest of its request, which `chars` do not count.
                item=replace(item, choice=ScorerChoice.model_construct(options=item.choice.options)),
                percentile=percentile,
                label=score.label,
                chars=chars,
                until=time.monotonic() + MOST_SECONDS,
            )
        )
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._compare_all())

    async def _compare_all(self) -> None:
        while self._queue:
            waiting = self._queue.popleft()
            try:
                outcome = await self._compare(waiting)
            except Exception as error:
                _LOGGER.warning("a shadow failed: %s", type(error).__name__, extra={"model": waiting.shadow.labels[1]})
                outcome = "failed"
            finally:
                self._chars -= waiting.chars
            metrics.SHADOW_TURNS.labels(*waiting.shadow.labels, outcome).inc()

    async def _compare(self, waiting: _Waiting) -> str:
        shadow = waiting.shadow
        if not await self._wait_until_idle(waiting.until):
            return "late"
        packs = await self._run(shadow, lambda: _encode(shadow.loaded, waiting.item))
        collector = PackCollector(shadow.loaded.scorer)
        answers: list[tuple[int, Answer]] = []
        for pack in packs:
            if not await self._wait_until_idle(waiting.until):
                return "late"
            answers += await self._run(shadow, partial(_compute, shadow.loaded, pack, collector))
        [(_, answer)] = answers
        percentile, label, correlation = await self._run(shadow, lambda: _compare(waiting, answer))
        metrics.SHADOW_SHIFT.labels(*shadow.labels).observe(abs(percentile - waiting.percentile))
        metrics.SHADOW_PERCENTILES.labels(*shadow.labels, "served").inc(waiting.percentile)
        metrics.SHADOW_PERCENTILES.labels(*shadow.labels, "shadow").inc(percentile)
        metrics.SHADOW_LABELS.labels(*shadow.labels, waiting.label or "none", label or "none").inc()
        if correlation is not None:
            metrics.SHADOW_CORRELATION.labels(*shadow.labels).set(correlation)
        return "compared"

    async def _wait_until_idle(self, until: float) -> bool:
        """Returns when no caller's work waits; False where the time passes first."""
        while not self._is_idle():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _run(self, shadow: _Shadow, work: Callable[[], _Result]) -> _Result:
        """Does the work in the thread, and counts its CPU time."""

        def timed() -> tuple[_Result, float]:
            started_at = time.thread_time()
            return work(), time.thread_time() - started_at

        result, seconds = await self._stage.run(timed)
        metrics.SHADOW_SECONDS.labels(*shadow.labels).inc(seconds)
        return result

    def _run_samples(self) -> None:
        for each in self._shadows.values():
            each.loaded.run_sample()


def _encode(loaded: LoadedScorer, item: Item) -> list[TokenPack]:
    """The turn as this version takes it, with its own reading of the options."""
    asked = (item.choice.options or {}).get(loaded.kind, {})
    turn = loaded.scorer.trim(replace(item.turn, options=loaded.scorer.read_options(asked), asked=asked))
    packs, failed = encode_isolating(loaded, [turn])
    if failed:
        raise failed[0]
    return packs


def _compute(loaded: LoadedScorer, pack: TokenPack, collector: PackCollector) -> list[tuple[int, Answer]]:
    [result] = score_isolating(loaded, [pack], TokenLimit(loaded.budget.most_tokens))
    return collector.take(pack, scores_of(pack, result))


def _compare(waiting: _Waiting, answer: Answer) -> tuple[float, Label | None, float | None]:
    """The percentile and label by the version's own curve and threshold, and the correlation of the pairs so far.

    Raises ValueError where the score is no number.
    """
    if isinstance(answer, ScoringError):
        raise answer
    loaded = waiting.shadow.loaded
    percentile = loaded.percentile(answer)
    if percentile is None or not math.isfinite(percentile):
        raise ValueError("the version gave no percentile")
    return percentile, loaded.label(answer), waiting.shadow.window.add(waiting.percentile, percentile)
