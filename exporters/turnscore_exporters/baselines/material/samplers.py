"""Samplers: wrong replies for an exchange, drawn at random or weighted towards the plausible.

Not wrong, and never drawn: a reply of the same dialogue, one that some dialogue of the pool gave to the same words, and
one with the words of the true reply.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnscore_exporters.baselines.material.exchanges import Exchange, normalize
from turnscore_exporters.errors import ExporterError

TRIES = 50
"""Random draws before the whole pool is searched. Chosen."""
CANDIDATES, TEMPERATURE = 100, 0.07
"""Of weighted negatives. Specified: PONE takes 70 to 500 candidates and temperatures of .05 to .1."""

Vectors = NDArray[np.float32]


class Negatives(Protocol):
    def draw(self, index: int, epoch: int) -> int:
        """The index of an exchange whose reply is wrong for the exchange at `index`, another one in each epoch."""


class ReplyPool:
    """The replies of some exchanges, and which of them may be drawn for which exchange."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.exchanges = exchanges
        self._queries = [normalize(each.query) for each in exchanges]
        self._replies = [normalize(each.reply) for each in exchanges]
        self._fitting: dict[str, set[str]] = defaultdict(set)
        for query, reply in zip(self._queries, self._replies, strict=True):
            self._fitting[query].add(reply)

    def __len__(self) -> int:
        return len(self.exchanges)

    def is_wrong(self, index: int, other: int) -> bool:
        """Whether the reply at `other` is certainly wrong for the query at `index`."""
        return (
            self.exchanges[other].dialogue != self.exchanges[index].dialogue
            and self._replies[other] not in self._fitting[self._queries[index]]
            and self._replies[other] != self._queries[index]
        )

    def draw_wrong(self, index: int, generator: random.Random) -> int:
        """The index of a wrong reply; ExporterError where the pool has none."""
        for _ in range(TRIES):
            other = generator.randrange(len(self.exchanges))
            if self.is_wrong(index, other):
                return other
        wrong = [other for other in range(len(self.exchanges)) if self.is_wrong(index, other)]
        if not wrong:
            raise ExporterError(
                f"none of {len(self.exchanges)} exchanges has a wrong reply for {self.exchanges[index].query!r}: "
                "draw more dialogues"
            )
        return generator.choice(wrong)


class RandomNegatives:
    """Draws any wrong reply, all with the same probability."""

    def __init__(self, pool: ReplyPool, seed: int = 0) -> None:
        self._pool = pool
        self._seed = seed

    def draw(self, index: int, epoch: int) -> int:
        return self._pool.draw_wrong(index, _generator(self._seed, epoch, index))


class WeightedNegatives:
    """PONE's sampler: the softmax of their likeness to the true reply draws one of some candidates.

    Every second epoch draws at random instead, as PONE alternates.
    """

    def __init__(
        self,
        pool: ReplyPool,
        vectors: Vectors,
        *,
        candidates: int = CANDIDATES,
        temperature: float = TEMPERATURE,
        seed: int = 0,
    ) -> None:
        """`vectors` [exchanges, width] are the replies', scaled to length 1."""
        self._pool = pool
        self._vectors = vectors
        self._candidates = candidates
        self._temperature = temperature
        self._seed = seed

    def draw(self, index: int, epoch: int) -> int:
        generator = _generator(self._seed, epoch, index)
        if epoch % 2:
            return self._pool.draw_wrong(index, generator)
        count = min(self._candidates, len(self._pool))
        found = [each for each in generator.sample(range(len(self._pool)), count) if self._pool.is_wrong(index, each)]
        if not found:
            return self._pool.draw_wrong(index, generator)
        weights = weigh_candidates(self._vectors[found] @ self._vectors[index], self._temperature)
        return generator.choices(found, weights=list(weights))[0]


def weigh_candidates(likeness: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """softmax(likeness / temperature)."""
    scaled = np.asarray(likeness, dtype=np.float64) / temperature
    weights: NDArray[np.float64] = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    return weights


def _generator(seed: int, epoch: int, index: int) -> random.Random:
    return random.Random(f"{seed} {epoch} {index}")  # noqa: S311
