"""Reducers: how the numbers of a row's pairs become the row's number. Results name theirs.

single   mean over hypotheses of d(y, first reference)
max      mean over hypotheses of the best over references: with several hypotheses, referenced precision
mean     mean over all pairs
joint    the metric's own definition for several references at once; not every metric has one
recall   mean over references of the best over hypotheses: with several, how much of what could be said was said
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from turnscore_assessment.references.comparisons import Comparison, Floats
from turnscore_assessment.references.errors import ReferencesError
from turnscore_assessment.references.metrics.metric import ComparesJointly, Group, Metric, Pair

JOINT: Final = "joint"
DEFAULT_REDUCER: Final = "max"

_OF_TABLE: Final[Mapping[str, Callable[[Floats], float]]] = {
    "single": lambda table: float(table[:, 0].mean()),
    "max": lambda table: float(table.max(axis=1).mean()),
    "mean": lambda table: float(table.mean()),
    "recall": lambda table: float(table.max(axis=0).mean()),
}
"""Reduces a table with a row per hypothesis and a column per reference."""
REDUCERS: Final = (*_OF_TABLE, JOINT)


def check_reducer(name: str, metric: Metric) -> None:
    """Raises ReferencesError for an unknown reducer, or one that the metric does not have."""
    if name not in REDUCERS:
        raise ReferencesError(f"no reducer is called {name}; choose one of {', '.join(REDUCERS)}")
    if name == JOINT and not isinstance(metric, ComparesJointly):
        raise ReferencesError(
            f"{metric.name} has no definition for several references at once: {JOINT} does not fit it"
        )


def fits(name: str, metric: Metric) -> bool:
    """Whether the metric has a number under this reducer."""
    return name in _OF_TABLE or isinstance(metric, ComparesJointly)


class Tables:
    """The pairs of many rows, each compared once by one metric for all reducers."""

    def __init__(self, metric: Metric, rows: Sequence[Comparison]) -> None:
        self.metric = metric
        self.rows = rows
        self._tables: list[Floats] | None = None
        self._joint: Floats | None = None

    def take(self, places: Sequence[int]) -> "Tables":
        """Those of some rows; what was compared is not compared again."""
        taken = Tables(self.metric, [self.rows[place] for place in places])
        if self._tables is not None:
            taken._tables = [self._tables[place] for place in places]
        if self._joint is not None:
            taken._joint = self._joint[list(places)]
        return taken

    def reduce(self, reducer: str) -> Floats:
        """One number per row, in order. Raises ReferencesError for a reducer that does not fit."""
        check_reducer(reducer, self.metric)
        if reducer == JOINT and isinstance(self.metric, ComparesJointly):
            return self._reduce_jointly(self.metric)
        return np.array([_OF_TABLE[reducer](table) for table in self._compared()])

    def reduce_first(self, reducer: str, references: int) -> Floats:
        """The result of `reduce` with the first references of each row alone."""
        if all(len(row.references) <= references for row in self.rows):
            return self.reduce(reducer)
        if reducer == JOINT:
            return Tables(self.metric, [row.with_references(references) for row in self.rows]).reduce(reducer)
        check_reducer(reducer, self.metric)
        return np.array([_OF_TABLE[reducer](table[:, :references]) for table in self._compared()])

    def _compared(self) -> list[Floats]:
        if self._tables is None:
            pairs: list[Pair] = [
                (own, other) for row in self.rows for own in row.hypotheses for other in row.references
            ]
            found = self.metric.compare(pairs)
            tables, start = [], 0
            for row in self.rows:
                size = len(row.hypotheses) * len(row.references)
                tables.append(found[start : start + size].reshape(len(row.hypotheses), -1))
                start += size
            self._tables = tables
        return self._tables

    def _reduce_jointly(self, metric: ComparesJointly) -> Floats:
        if self._joint is None:
            found = metric.compare_jointly(groups_of(self.rows))
            counts = [len(row.hypotheses) for row in self.rows]
            starts = np.cumsum([0, *counts[:-1]])
            self._joint = np.asarray(np.add.reduceat(found, starts) / counts)
        return self._joint


def groups_of(rows: Sequence[Comparison]) -> list[Group]:
    """Every hypothesis with its row's references."""
    return [(own, row.references) for row in rows for own in row.hypotheses]
