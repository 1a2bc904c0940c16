"""Counts the scores of live turns for metrics. Keeps no text.

Counting is plain arithmetic in the event loop: but for percentiles, it reaches the series when they are written out.
"""

from collections.abc import Mapping
from functools import cache

from turnscore_core.errors import NotComputableError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.turn_warnings import WARNINGS
from turnscore_core.scoring import Item, Outcome
from turnscore_wire import Score

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER

OTHER_TENANTS = "other"
# Turns of context whose characters are counted at most. Chosen: to count them takes a microsecond.
_MEASURED_TURNS = 16
_LABELS = ("low", "fair", "good", "none")


@cache
def _begin_series(scorer: str, model: str, tenant: str) -> tuple[str, str, str]:
    """The labels of the series of a scorer's bundle, which begin at 0: Prometheus then sees the first turn rise."""
    labels = scorer, metrics.model_label(model), tenant
    metrics.SCORE_PERCENTILE.labels(*labels)
    for label in _LABELS:
        metrics.LIVE_TURNS.count(*labels, label, by=0)
    for family in (
        metrics.LIVE_DIALOGUES,
        metrics.CUT_TURNS,
        metrics.NOT_COMPUTABLE_TURNS,
        metrics.LIVE_TOKENS,
        metrics.LIVE_CHARS,
    ):
        family.count(*labels, by=0)
    return labels


def _count(name: str, score: Score, tenant: str, chars: int | None, begins: bool) -> None:
    """One live turn and its score; `chars` are those that its scorer was given, None where that does not count."""
    labels, tokens = _begin_series(name, score.model, tenant), score.tokens
    metrics.LIVE_TURNS.count(*labels, score.label or "none")
    if score.percentile is not None:
        metrics.SCORE_PERCENTILE.labels(*labels).observe(score.percentile)
    if begins:
        metrics.LIVE_DIALOGUES.count(*labels)
    if tokens.dropped:
        metrics.CUT_TURNS.count(*labels)
    if chars is not None and not score.cached:
        metrics.LIVE_TOKENS.count(*labels, by=tokens.used + tokens.dropped)
        metrics.LIVE_CHARS.count(*labels, by=chars)
    for warning in score.warnings:
        if warning in WARNINGS:
            metrics.WARNED_TURNS.count(*labels, warning)
    for signal in score.signals:
        metrics.USER_SIGNALS.labels(*labels, signal).inc()


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
        for turn in item.turn.context:  # twice as fast as all(), and ends at the second turn
            if turn.speaker == "system":
                begins = False
                break
        known, chars = "", None  # of the latest pass
        for name, score in outcome.scores.items():
            loaded = self._scorers.get(item.versions.get(name, name) if item.versions else name)
            if loaded is None:  # a combination, which makes no tokens of its own
                known, chars = "", None
            elif loaded.pass_key is not known:
                read, known, chars = item.turn_for(loaded), loaded.pass_key, None
                if len(read.context) <= _MEASURED_TURNS:
                    chars = len(read.response) + sum([len(each.text) for each in read.context])
            _count(name, score, tenant, chars, begins)
        for name, error in outcome.errors.items():
            loaded = self._scorers.get(item.versions.get(name, name))
            if loaded is not None and isinstance(error, NotComputableError):
                metrics.NOT_COMPUTABLE_TURNS.count(*_begin_series(name, loaded.model, tenant))
