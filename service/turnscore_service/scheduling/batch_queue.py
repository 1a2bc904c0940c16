"""The queue of one scorer: packs sorted by width, each caller's by age, and which of them make the next batch.

Runs nothing, waits for nothing. What a batch costs to take depends on its own packs, not on all that wait.
"""

import asyncio
import math
import time
from bisect import bisect_left, insort
from operator import attrgetter

from turnscore_core.batches import BatchBudget, SizedPack, WasteLimit, grow_batch
from turnscore_core.errors import FailedScoringError
from turnscore_core.scorers.scorer import RawScore, TokenPack

from turnscore_service.log_setup import REQUEST_ID
from turnscore_service.scheduling.fairness import FairOrder

_LEAST_SHARE = 8
"""While several callers wait, who has little queued need not wait for a full batch of the others': its batch is filled
to an equal part for each, but at least to this part of the budget, below which batches cost more than they save.
Chosen."""

_OLDEST_EVERY = 8
"""While several callers wait, one batch in so many begins with the oldest turn of all. Chosen."""

_ORDER = attrgetter("order")


class PackScores:
    """The raw scores of a pack's answers, a failed one in its error's form, and where its time went."""

    __slots__ = ("inference_seconds", "queue_seconds", "raw")

    def __init__(
        self, raw: tuple[RawScore | FailedScoringError, ...], queue_seconds: float, inference_seconds: float
    ) -> None:
        self.raw = raw
        self.queue_seconds = queue_seconds
        self.inference_seconds = inference_seconds


class QueuedPack(SizedPack):
    """One pack in the queue, whose it is, and the future that its caller waits for."""

    __slots__ = ("arrived_at", "caller", "future", "number", "order", "request_id", "timer")

    def __init__(self, pack: TokenPack, number: int, caller: str, future: "asyncio.Future[PackScores]") -> None:
        super().__init__(pack)
        self.number = number
        self.caller = caller
        self.future = future
        self.order = (self.width, number)
        self.timer: asyncio.TimerHandle | None = None
        self.request_id = REQUEST_ID.get()
        self.arrived_at = time.monotonic()


class BatchQueue:
    """Belongs to one event loop."""

    def __init__(self, budget: BatchBudget, waste: WasteLimit) -> None:
        self._budget = budget
        self._waste = waste
        self._by_width: list[QueuedPack] = []
        self._by_caller: dict[str, dict[int, QueuedPack]] = {}
        """Each caller's packs by number, the oldest first; callers with none are left out."""
        self._tokens_by_caller: dict[str, int] = {}
        self._order = FairOrder()
        self._batches = 0
        self._padded = 0
        self.tokens = 0
        """Without padding."""

    def __len__(self) -> int:
        return len(self._by_width)

    def callers(self) -> int:
        """How many callers wait."""
        return len(self._by_caller)

    def add(self, entry: QueuedPack) -> None:
        """Puts it where its width belongs."""
        if entry.caller not in self._by_caller:
            self._by_caller[entry.caller] = {}
            self._tokens_by_caller[entry.caller] = 0
            self._order.join(entry.caller)
        insort(self._by_width, entry, key=_ORDER)
        self._by_caller[entry.caller][entry.number] = entry
        self._tokens_by_caller[entry.caller] += entry.real
        self.tokens += entry.real
        self._padded += entry.padded

    def drop_departed(self) -> list[QueuedPack]:
        """Takes out the packs that nobody waits for any more."""
        departed = [entry for entry in self._by_width if entry.future.done()]
        if departed:
            self._by_width = [entry for entry in self._by_width if not entry.future.done()]
            for entry in departed:
                self._forget(entry)
        return departed

    def take_batch(self, most_tokens: int, idle_lanes: int) -> list[QueuedPack]:
        """Takes out the pack whose time has come and those nearest to it in width, as budget and waste allow."""
        first = self._choose_first()
        place = bisect_left(self._by_width, first.order, key=_ORDER)
        share = math.ceil(self._padded / idle_lanes) if idle_lanes > 1 else math.inf
        budget = min(most_tokens, max(self._budget.least_split_tokens, share))
        if len(self._by_caller) > 1:
            equal = len(self._by_caller) * self._tokens_by_caller[first.caller]
            budget = min(budget, max(equal, most_tokens // _LEAST_SHARE))
        low, high = grow_batch(self._by_width, place, budget, self._waste)
        batch = self._by_width[low:high]
        del self._by_width[low:high]
        for entry in batch:
            self._forget(entry)
            self._order.charge(entry.caller, entry.real)
        return batch

    def _choose_first(self) -> QueuedPack:
        """The oldest turn of whose turn it is; at intervals of all, lest callers who come once each starve it."""
        self._batches += 1
        chosen = self._order.choose(self._by_caller)
        if self._batches % _OLDEST_EVERY == 0:
            return min(map(_oldest, self._by_caller.values()), key=attrgetter("number"))
        return _oldest(self._by_caller[chosen])

    def _forget(self, entry: QueuedPack) -> None:
        own = self._by_caller[entry.caller]
        del own[entry.number]
        self._tokens_by_caller[entry.caller] -= entry.real
        if not own:
            del self._by_caller[entry.caller], self._tokens_by_caller[entry.caller]
        self.tokens -= entry.real
        self._padded -= entry.padded


def _oldest(packs: dict[int, QueuedPack]) -> QueuedPack:
    return next(iter(packs.values()))
