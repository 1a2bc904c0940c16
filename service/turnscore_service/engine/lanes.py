"""Lanes: packs of one scorer in batches sorted by width, on some threads. Tokenizes nothing, knows no dialogue."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import attrgetter

from turnscore_core.inference.batch_budget import TokenLimit
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TokenPack

from turnscore_service.scheduling.batch_growth import SizedPack, grow_batch
from turnscore_service.scheduling.isolation import PackResult, score_isolating

_AHEAD = 2
"""Batches for each lane that are under way: one computes, the next waits for nobody. Chosen."""


class Lanes:
    """The threads of one scorer."""

    def __init__(self, loaded: LoadedScorer, max_batch_tokens: int | None = None) -> None:
        self._loaded = loaded
        self._limit = TokenLimit(max_batch_tokens or loaded.budget.most_tokens)
        self._ahead = _AHEAD * loaded.concurrency.lanes
        self._threads = ThreadPoolExecutor(loaded.concurrency.lanes, f"turnscore-{loaded.name}")

    def compute(self, packs: Sequence[TokenPack]) -> Iterator[tuple[TokenPack, PackResult]]:
        """Each pack with its result, in the order in which the batches were made: the widest first.

        The same packs make the same batches every time, unless memory ends.
        """
        under_way: deque[tuple[list[TokenPack], Future[list[PackResult]]]] = deque()
        for batch in self._batches(packs):
            under_way.append((batch, self._threads.submit(score_isolating, self._loaded, batch, self._limit)))
            if len(under_way) > self._ahead:
                yield from _take(under_way)
        while under_way:
            yield from _take(under_way)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()

    def _batches(self, packs: Sequence[TokenPack]) -> Iterator[list[TokenPack]]:
        sized = sorted(map(SizedPack, packs), key=attrgetter("width"))
        while sized:
            low, high = grow_batch(sized, len(sized) - 1, self._limit.tokens, self._loaded.budget.waste)
            batch = [each.pack for each in sized[low:high]]
            del sized[low:high]
            yield batch


def _take(
    under_way: deque[tuple[list[TokenPack], "Future[list[PackResult]]"]],
) -> Iterator[tuple[TokenPack, PackResult]]:
    batch, scoring = under_way.popleft()
    yield from zip(batch, scoring.result(), strict=True)
