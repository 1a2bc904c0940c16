"""Makes prometheus_client's counters, gauges and histograms cheap enough to be updated many times a turn.

Where several workers share a folder, prometheus_client writes a series into its file whenever it changes. Here it only
changes in the process, where it is read at once, and is written by `write_out`: before a scrape, and by the runtime
every so often for the other workers' scrapes.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from typing import Any

import prometheus_client
from prometheus_client import Metric, values

_lock = Lock()
_unwritten: "list[_BufferedValue]" = []
_counted_apart: list[Callable[[], None]] = []


class _BufferedValue(values.MultiProcessValue()):  # type: ignore[misc]
    """A number that its file gets later."""

    _is_written = True

    def inc(self, amount: float) -> None:
        with _lock:
            self._value += amount
            self._note(0.0)

    def set(self, value: float, timestamp: float | None = None) -> None:
        with _lock:
            self._value = value
            self._note(timestamp or 0.0)

    def get(self) -> float:
        return float(self._value)

    def write(self) -> None:
        self._is_written = True
        super().set(self._value, self._timestamp)

    def _note(self, timestamp: float) -> None:
        self._timestamp = timestamp
        if self._is_written:
            self._is_written = False
            _unwritten.append(self)


def buffer_files() -> None:
    """Series made from here on are buffered, if they are kept in files at all."""
    if values.ValueClass._multiprocess:
        values.ValueClass = _BufferedValue  # as its documentation replaces it


def count_before_writing(add_up: Callable[[], None]) -> None:
    """Has every `write_out` call this first, which adds to series what was counted elsewhere."""
    _counted_apart.append(add_up)


def write_out() -> None:
    for add_up in _counted_apart:
        add_up()
    with _lock:
        changed = _unwritten.copy()
        _unwritten.clear()
        for value in changed:
            value.write()


class _Remembers:
    """A family of series that finds each by its labels in one look."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.labels = cache(super().labels)  # type: ignore[misc]


class Counter(_Remembers, prometheus_client.Counter):
    """As prometheus_client's, without exemplars."""

    def inc(self, amount: float = 1, exemplar: object = None) -> None:
        """Adds to it. Raises ValueError for less than nothing."""
        if amount < 0:
            raise ValueError("a counter does not go down")
        self._value.inc(amount)


class TallyCounter(Counter):
    """A family of series that count several times a turn; they get it when they are read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._is_parent():  # type: ignore[no-untyped-call]
            self._tally: defaultdict[tuple[str, ...], int] = defaultdict(int)  # grows in one thread, read in any
            self._added: dict[tuple[str, ...], int] = {}
            count_before_writing(self._add_up)

    def count(self, *labels: str, by: int = 1) -> None:
        """So many more of the series with these labels, which is there from then on."""
        self._tally[labels] += by

    def collect(self) -> Iterable[Metric]:
        self._add_up()
        return super().collect()

    def _add_up(self) -> None:
        with self._lock:
            tally = list(self._tally.items())
            new = [(labels, total - self._added.get(labels, 0)) for labels, total in tally]
            self._added.update(tally)
        for labels, count in new:
            self.labels(*labels).inc(count)


class Gauge(_Remembers, prometheus_client.Gauge):
    """As prometheus_client's, but for its modes that ask for the time."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self.set = self._value.set  # type: ignore[method-assign]


class Histogram(_Remembers, prometheus_client.Histogram):
    """As prometheus_client's, without exemplars."""

    def observe(self, amount: float, exemplar: object = None) -> None:
        """Counts the amount in its bucket, the first whose bound is not below it."""
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)
