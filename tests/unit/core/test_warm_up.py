"""What a scorer runs when it is loaded, so that its runtime's arenas have what the largest batches need."""

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.bundles import make_quality_bundle
from support.fakes import FakeScorer, loaded_fake
from turnscore_core import model_loader as warm_up
from turnscore_core.batches import padded_tokens
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.model_loader import fill_arenas
from turnscore_core.scorers.scorer import RawScore, TokenPack, TurnToScore
from turnscore_models import read_bundle, starter_bundles
from turnscore_wire import Turn

MOST_TOKENS = 256


class MeetingScorer(FakeScorer):
    """Answers a batch only when as many run at once as there are lanes."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self._meeting = threading.Barrier(lanes)

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        self._meeting.wait(120)
        return super().score(batch)


def test_every_lane_runs_its_batches_at_the_same_time():
    loaded = dataclasses.replace(loaded_fake(MeetingScorer(3)), concurrency=Concurrency(lanes=3))
    fill_arenas(loaded, MOST_TOKENS)
    assert len(loaded.scorer.batches) % 3 == 0


def test_beside_callers_each_batch_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch):
    rests: list[float] = []
    monkeypatch.setattr(warm_up.time, "sleep", rests.append)
    loaded = loaded_fake(FakeScorer())
    fill_arenas(loaded, MOST_TOKENS)
    assert rests == []
    fill_arenas(loaded, MOST_TOKENS, beside_callers=True)
    assert len(rests) == len(loaded.scorer.batches) / 2


def test_beside_callers_half_of_the_lanes_are_theirs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warm_up.time, "sleep", lambda _: None)
    loaded = dataclasses.replace(loaded_fake(FakeScorer()), concurrency=Concurrency(lanes=4))
    fill_arenas(loaded, MOST_TOKENS)
    in_all_lanes = len(loaded.scorer.batches)
    fill_arenas(loaded, MOST_TOKENS, beside_callers=True)
    assert len(loaded.scorer.batches) == in_all_lanes + in_all_lanes / 2


@pytest.mark.parametrize("folder", starter_bundles(), ids=lambda folder: folder.name)
def test_the_batches_are_as_large_as_they_may_be_and_of_unlike_widths(folder, monkeypatch: pytest.MonkeyPatch):
    bundle = read_bundle(folder)
    loaded = load_scorer(bundle, choose_variant(bundle))
    batches: list[Sequence[TokenPack]] = []
    score = loaded.scorer.score
    monkeypatch.setattr(loaded.scorer, "score", lambda batch: [batches.append(batch), score(batch)][1])
    fill_arenas(loaded, MOST_TOKENS)
    # No further pack of a batch's form would fit, and FED's packs are larger than that alone.
    assert all(2 * sum(map(padded_tokens, batch)) > MOST_TOKENS for batch in batches)
    widest = [max(pack.width for pack in batch) for batch in batches]
    assert max(widest) >= bundle.manifest.token_limit // 2
    assert loaded.name == "fed" or min(widest) <= 16


def test_the_longest_response_that_is_read_in_windows_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = load_scorer(make_quality_bundle(tmp_path / "bundle"), "fp32")
    rows: list[int] = []
    score = loaded.scorer.score
    monkeypatch.setattr(
        loaded.scorer, "score", lambda batch: [rows.append(sum(len(each.rows) for each in batch)), score(batch)][1]
    )
    fill_arenas(loaded, 16)
    [longest] = loaded.scorer.encode([TurnToScore([Turn(speaker="user", text="a")], "a " * 1000)])
    assert len(longest.rows) in rows
