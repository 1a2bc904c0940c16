"""The cache when other models take the place of those that were served: one memory, and marks before reading."""

from collections.abc import Mapping, Sequence

import pytest
from support.cache_loads import DictLevel
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.score_entries import mark_key
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_service.cache.redis_client import PendingWrite
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import CacheLookup, ScoreCache
from turnscore_service.settings.cache import CacheSettings
from turnscore_wire import TokenCount

TURN = TurnToScore([], "a b c")


class DictStore:
    """A Redis that is a dict; a sick one answers nothing."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.is_sick = False

    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        if self.is_sick:
            raise ConnectionError("gone")
        return [self.entries.get(key) for key in keys]

    async def write(self, entries: Mapping[str, PendingWrite]) -> list[Exception]:
        return []

    async def remove(self, pattern: str) -> int:
        return 0

    async def drop_idle(self) -> None:
        pass

    async def close(self) -> None:
        pass


def look_up(cache: ScoreCache, loaded: LoadedScorer) -> CacheLookup:
    lookup = CacheLookup(loaded=loaded, turn=TURN, inputs=loaded.scorer.inputs_of(TURN))
    cache.look_up(lookup)
    return lookup


def keep(cache: ScoreCache, loaded: LoadedScorer, value: float) -> None:
    lookup = look_up(cache, loaded)
    cache.keep(lookup, {part: RawScore(value, tokens=TokenCount(used=3, dropped=0)) for part in lookup.fragments})


def test_scores_that_were_kept_are_found_again_by_their_own_version_alone() -> None:
    settings, shared = CacheSettings(), DictLevel()
    first, second, stays = (
        loaded_fake(FakeScorer()), loaded_fake(FakeScorer(), version="1.1.0"), loaded_fake(FakeScorer(), "stays"),
    )  # fmt: skip
    cache = ScoreCache({"fake": first, "stays": stays}, settings, shared)
    cache.take_mark("stays:1.0.0", b"cleared once")
    keep(cache, first, 0.25)
    keep(cache, stays, 0.75)
    following = ScoreCache({"fake": second, "stays": stays}, settings, before=cache)
    assert look_up(following, second).missing  # another version's score
    assert not look_up(following, stays).missing  # found with the mark that was known before
    back = ScoreCache({"fake": first, "stays": stays}, settings, before=following)
    assert not look_up(back, first).missing
    keep(back, first, 0.5)
    assert len(shared.entries) == 2  # the shared level is the same throughout


@pytest.mark.parametrize("is_sick", [False, True])
async def test_marks_of_the_next_models_are_known_before_anything_of_theirs_is_read(is_sick: bool) -> None:
    settings = CacheSettings(clear_poll_seconds=3600)
    store, marks = DictStore(), dict[str, bytes]()
    level = RedisLevel(store, settings)
    level.start(["fake:1.0.0"], marks.__setitem__)
    await until(lambda: marks == {"fake:1.0.0": b""})
    await until(lambda: level._reading.is_closed)
    store.entries[mark_key("fake:1.1.0")] = b"cleared"
    store.is_sick = is_sick
    await level.follow(["fake:1.1.0"], marks.__setitem__)
    if is_sick:  # what was cleared cannot be known, so nothing is read
        assert await level.fetch(["key"], 60) is None
        assert "fake:1.1.0" not in marks
        store.is_sick = False
        await until(lambda: level._reading.is_closed)
    assert marks["fake:1.1.0"] == b"cleared"
    await level.stop()
