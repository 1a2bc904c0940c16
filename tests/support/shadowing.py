"""Shadows on fakes: turns that were said, versions that differ, and what the series grew by."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from prometheus_client import REGISTRY
from turnscore_core.deadline import Deadline
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_core.scoring import Item, Outcome
from turnscore_service.scheduling.executor import ExecutorWatch
from turnscore_service.scheduling.shadow import Shadows
from turnscore_wire import Score, TokenCount

from support.fakes import FakeScorer, candidate_version

LABELS = {"scorer": "fake", "model": "fake:1.1.0", "served": "fake:1.0.0"}


def read(series: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"turnscore_shadow_{series}", {**LABELS, **labels}) or 0.0


class Since:
    """What series grew by since this was made."""

    def __init__(self) -> None:
        self._before: dict[Any, float] = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in REGISTRY.collect()
            for sample in family.samples
            if sample.name.startswith("turnscore_shadow_")
        }

    def __call__(self, series: str, **labels: str) -> float:
        key = (f"turnscore_shadow_{series}", tuple(sorted({**LABELS, **labels}.items())))
        return read(series, **labels) - self._before.get(key, 0.0)

    def outcomes(self) -> dict[str, int]:
        counts = {each: int(self("turns_total", outcome=each)) for each in ("compared", "failed", "full", "late")}
        return {each: count for each, count in counts.items() if count}


class Looks:
    """Counts how often it is asked whether nothing else waits."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, is_idle: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            self.count += 1
            return is_idle()

        return look


class Longer(FakeScorer):
    """Gives each response two words more."""

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [RawScore(raw.value + 0.02) for raw in super().score(batch)]


def said(words: int, **fields: Any) -> tuple[Item, Outcome]:
    """A turn of so many words, with the answer that a served FakeScorer gave it."""
    value = words / 100
    score = Score(
        value=value,
        percentile=float(words),
        details={},
        model="fake:1.0.0",
        tokens=TokenCount(used=words, dropped=0),
        cached=False,
        label=fields.pop("label", None),
        stand_in=False,
    )
    response = " ".join(["word"] * words)
    item = Item(context=(), response=response, asked={"fake": {}}, deadline=Deadline.after_ms(1000), **fields)
    return item, Outcome(scores={"fake": score})


@asynccontextmanager
async def shadows_of(
    scorer: FakeScorer,
    *,
    share: float = 1.0,
    is_idle: Callable[[], bool] = lambda: True,
    stall_seconds: float = 60,
    threshold: float | None = None,
) -> AsyncIterator[Shadows]:
    version = candidate_version(scorer, share)
    version = replace(version, loaded=replace(version.loaded, threshold=threshold))
    found = Shadows([version], lambda _: "fake:1.0.0", is_idle, ExecutorWatch(stall_seconds=stall_seconds))
    try:
        yield found
    finally:
        scorer.gate.set()
        await found.stop()
