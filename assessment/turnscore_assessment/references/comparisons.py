"""Comparisons: one system's hypotheses in one context, the replies known to be good there, and people's rating."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_TEXTS = 1000
"""Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most."""
MOST_CHARS = 100_000
"""Most characters of one text. Chosen: far beyond any reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row of a file; texts are compared only within it."""

    context_id: str
    """Rows of one context depend on each other: intervals are taken over contexts."""
    system: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]
    """The original reply first: `single` compares with it."""
    rating: float | None = None
    """People's rating of the row's hypothesis."""

    def with_references(self, count: int) -> "Comparison":
        """The row with its first `count` references."""
        return Comparison(
            context_id=self.context_id,
            system=self.system,
            hypotheses=self.hypotheses,
            references=self.references[:count],
            rating=self.rating,
        )


def by_system(rows: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """The rows of each system, in the order in which systems are first named."""
    found: dict[str, list[Comparison]] = {}
    for row in rows:
        found.setdefault(row.system, []).append(row)
    return found
