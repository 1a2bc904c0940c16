"""Counts the scores of live turns for metrics. Keeps no text, makes no object a turn.

Counting is plain arithmetic in the event loop. What it found reaches the series when they are written out.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from threading import Lock

from turnscore_core.errors import NotComputableError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.turn_warnings import WARNINGS
from turnscore_core.scoring import Item, Outcome
from turnscore_wire import Score

from turnscore_service import metrics
from turnscore_service._patches import prometheus_series as series
from turnscore_service.auth.access import CALLER

OTHER_TENANTS = "other"
# Turns of context whose characters are counted at most. Chosen: to count them takes a microsecond.
_MEASURED_TURNS = 16
_BOUNDS = metrics.PERCENTILE_BOUNDS
_LABELS = ("low", "fair", "good", "none")
_Labels = tuple[str, str, str]


class _Tally:
    """All live turns of one scorer's bundle and one tenant. Totals only grow; one thread adds, any may read."""

    __slots__ = (
        "bins", "chars", "cut", "dialogues", "labels", "not_computable", "percentiles", "tokens", "warned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bins = [0] * len(_BOUNDS)
        self.percentiles = 0.0  # their sum
        self.labels = dict.fromkeys(_LABELS, 0)
        self.warned = dict.fromkeys(WARNINGS, 0)
        self.dialogues = self.cut = self.not_computable = self.tokens = self.chars = 0

    def count(self, score: Score, chars: int | None) -> None:
        """One live turn and its score; `chars` are those that its scorer was given, None where that does not count."""
        self.labels[score.label or "none"] += 1
        if (percentile := score.percentile) is not None:
            self.bins[bisect_left(_BOUNDS, percentile)] += 1
            self.percentiles += percentile
        tokens = score.tokens
        if tokens.dropped:
            self.cut += 1
        if score.warnings:
            for warning in score.warnings:
                if warning in self.warned:
                    self.warned[warning] += 1
        if chars is not None and not score.cached:
            self.tokens += tokens.used + tokens.dropped
            self.chars += chars

    def numbers(self) -> list[float]:
        counts = (self.percentiles, self.dialogues, self.cut, self.not_computable, self.tokens, self.chars)
        return [*counts, *self.bins, *self.labels.values(), *self.warned.values()]


def _count_chars(turn: TurnToScore) -> int | None:
    """None where there are too many texts to count."""
    if len(turn.context) > _MEASURED_TURNS:
        return None
    return len(turn.response) + sum([len(each.text) for each in turn.context])


_tallies: defaultdict[_Labels, _Tally] = defaultdict(_Tally)
_added: dict[_Labels, list[float]] = {}
_lock = Lock()


class ScoreMetrics:
    def __init__(self, scorers: Mapping[str, LoadedScorer], tenants: tuple[str, ...] = ()) -> None:
        """`scorers`, by the names under which they work; `tenants`: names of keys that are told apart."""
        self._scorers = scorers
        self._tenants = frozenset(tenants)

    def count(self, item: Item, outcome: Outcome) -> None:
        """What the scorers said of one live turn of this task's caller."""
        tenant = ""
        if self._tenants:
            key = CALLER.get().key_name
            tenant = key if key in self._tenants else OTHER_TENANTS
        begins = True
        for turn in item.context:  # twice as fast as all(), and ends at the second turn
            if turn.speaker == "system":
                begins = False
                break
        known, chars = "", None  # of the latest pass
        for name, score in outcome.scores.items():
            loaded = self._scorers.get(item.versions.get(name, name) if item.versions else name)
            if loaded is None:  # a combination, which makes no tokens of its own
                known, chars = "", None
            elif loaded.pass_key is not known:
                known, chars = loaded.pass_key, _count_chars(item.turn_for(loaded))
            tally = _tallies[name, score.model, tenant]
            tally.count(score, chars)
            for signal in score.signals:
                metrics.USER_SIGNALS.labels(name, metrics.model_label(score.model), tenant, signal).inc()
            tally.dialogues += begins
        for name, error in outcome.errors.items():
            loaded = self._scorers.get(item.versions.get(name, name))
            if loaded is not None and isinstance(error, NotComputableError):
                _tallies[name, loaded.model, tenant].not_computable += 1


def add_up() -> None:
    """Adds to the series what was counted since the last time."""
    with _lock:
        for labels, tally in list(_tallies.items()):
            numbers = tally.numbers()
            before = _added.get(labels, [0.0] * len(numbers))
            if numbers != before:
                _added[labels] = numbers
                _add(labels, [new - old for new, old in zip(numbers, before, strict=True)])


def _add(counted: _Labels, more: list[float]) -> None:
    name, model, tenant = counted
    labels = name, metrics.model_label(model), tenant
    percentiles, *counts = more[:6]
    families = (
        metrics.LIVE_DIALOGUES,
        metrics.CUT_TURNS,
        metrics.NOT_COMPUTABLE_TURNS,
        metrics.LIVE_TOKENS,
        metrics.LIVE_CHARS,
    )
    for family, count in zip(families, counts, strict=True):
        family.labels(*labels).inc(count)
    bins_end = 6 + len(_BOUNDS)
    metrics.SCORE_PERCENTILE.labels(*labels).add([int(each) for each in more[6:bins_end]], percentiles)
    for label, count in zip(_LABELS, more[bins_end:], strict=False):
        metrics.LIVE_TURNS.labels(*labels, label).inc(count)
    for warning, count in zip(WARNINGS, more[bins_end + len(_LABELS) :], strict=True):
        if count:
            metrics.WARNED_TURNS.labels(*labels, warning).inc(count)


series.count_before_writing(add_up)
