"""What the cache finds, where, and what it never serves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from support.cache_loads import DictLevel
from support.fakes import FakeScorer, ManualClock, loaded_fake
from support.fed import make_fed_scorer
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_service.cache.score_cache import ENTRY_OVERHEAD_BYTES, CacheLookup, LocalLevel, ScoreCache
from turnscore_service.settings.cache import CacheSettings
from turnscore_wire import TokenCount, Turn

ONLY_SHARED = CacheSettings(local_max_bytes=0)


def part(value: float) -> RawScore:
    return RawScore(value, tokens=TokenCount(used=3, dropped=0))


def fake(version: str = "1.0.0", name: str = "fake") -> LoadedScorer:
    loaded = loaded_fake(FakeScorer(), name)
    manifest = loaded.bundle.manifest.model_copy(update={"version": version})
    return LoadedScorer(
        scorer=loaded.scorer,
        bundle=type(loaded.bundle)(loaded.bundle.folder, manifest),
        variant="fp32",
        percentiles=loaded.percentiles,
    )


def cache_of(
    loaded: LoadedScorer, shared: DictLevel | None = None, settings: CacheSettings | None = None
) -> ScoreCache:
    return ScoreCache({loaded.name: loaded}, settings or CacheSettings(), shared)


def cache_with_mark(loaded: LoadedScorer, shared: DictLevel) -> ScoreCache:
    cache = cache_of(loaded, shared)
    cache.take_mark(loaded.bundle.manifest.reference, b"1")
    return cache


async def ask(
    cache: ScoreCache, loaded: LoadedScorer, text: str = "hi", options: Any = None, **choice: Any
) -> CacheLookup:
    turn = TurnToScore([Turn(speaker="user", text="hello")], text, options=options)
    lookup = CacheLookup(loaded=loaded, turn=turn, inputs=loaded.scorer.inputs_of(turn))
    cache.look_up(lookup, **choice)
    await cache.find([lookup], 1)
    return lookup


async def keep(cache: ScoreCache, loaded: LoadedScorer, value: float = 0.5, **asked: Any) -> None:
    lookup = await ask(cache, loaded, **asked)
    cache.keep(lookup, {piece: part(value) for piece in lookup.fragments})


def values(lookup: CacheLookup) -> Sequence[float | None]:
    return [lookup.known[piece].value if piece in lookup.known else None for piece in lookup.fragments]


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"turnscore_cache_{name}_total", {"scorer": "fake", **labels}) or 0.0


async def test_a_score_kept_elsewhere_is_found_once_and_then_in_the_process():
    loaded, shared = fake(), DictLevel()
    await keep(cache_of(loaded, shared), loaded)
    cache = cache_of(loaded, shared)
    shared.asked.clear()
    before = counted("hits", level="shared")
    assert values(await ask(cache, loaded)) == values(await ask(cache, loaded)) == [0.5]
    assert len(shared.asked) == 1
    assert counted("hits", level="shared") == before + 1


async def test_a_mark_hides_what_was_kept_without_it_on_both_levels_and_of_no_other_model():
    one, other, shared = fake(), fake(name="other"), DictLevel()
    cache = ScoreCache({"fake": one, "other": other}, CacheSettings(), shared)
    await keep(cache, one)
    await keep(cache, other)
    late = await ask(cache, one, text="late")
    cache.take_mark("fake:1.0.0", b"1")
    cache.keep(late, {piece: part(0.5) for piece in late.fragments})
    assert values(await ask(cache, one)) == values(await ask(cache, one, text="late")) == [None]
    assert values(await ask(cache, other)) == [0.5]
    await keep(cache, one, value=0.75)
    assert values(await ask(cache, one)) == values(await ask(cache_with_mark(one, shared), one)) == [0.75]


async def test_namespaces_do_not_see_each_other():
    loaded, shared = fake(), DictLevel()
    cache = cache_of(loaded, shared)
    await keep(cache, loaded, namespace="one")
    assert values(await ask(cache, loaded, namespace="two")) == [None]
    assert values(await ask(cache, loaded)) == [None]
    assert values(await ask(cache_of(loaded, shared, CacheSettings(namespace="one")), loaded)) == [0.5]


@pytest.mark.parametrize(("damage", "cause"), [(b"\x03", "unreadable"), (b"", "unreadable"), (b"\x02x", "stale")])
async def test_an_entry_that_cannot_be_read_is_a_miss_by_its_cause(damage: bytes, cause: str):
    loaded, shared = fake(), DictLevel()
    cache = cache_of(loaded, shared, ONLY_SHARED)
    await keep(cache, loaded)
    shared.entries = dict.fromkeys(shared.entries, damage)
    before = counted("misses", cause=cause)
    assert values(await ask(cache, loaded)) == [None]
    assert counted("misses", cause=cause) == before + 1


async def test_entries_that_were_mixed_up_are_not_served():
    loaded, shared = fake(), DictLevel()
    cache = cache_of(loaded, shared, ONLY_SHARED)
    await keep(cache, loaded, value=0.1, text="a")
    await keep(cache, loaded, value=0.9, text="b")
    shared.entries = dict(zip(shared.entries, reversed(shared.entries.values()), strict=True))
    assert values(await ask(cache, loaded, text="a")) == [None]


async def test_an_entry_of_another_secret_is_not_served():
    loaded, shared = fake(), DictLevel()
    mine, theirs = (CacheSettings.model_validate({"secret": secret, "local_max_bytes": 0}) for secret in ("a", "b"))
    await keep(cache_of(loaded, shared, mine), loaded)
    [entry] = shared.entries.values()
    lookup = await ask(cache_of(loaded, shared, theirs), loaded)
    shared.entries[lookup.key or ""] = entry
    assert values(await ask(cache_of(loaded, shared, theirs), loaded)) == [None]
    assert values(await ask(cache_of(loaded, shared, mine), loaded)) == [0.5]


async def test_a_sick_shared_level_is_a_miss_that_is_counted():
    loaded, shared = fake(), DictLevel()
    shared.is_sick = True
    before = counted("misses", cause="unavailable")
    assert values(await ask(cache_of(loaded, shared), loaded)) == [None]
    assert counted("misses", cause="unavailable") == before + 1


async def test_pieces_kept_by_two_requests_at_once_are_both_kept(tmp_path: Path):
    scorer, _ = make_fed_scorer(tmp_path / "fed")
    loaded = loaded_fake(scorer, "fed")
    cache = cache_of(loaded)
    kind, clear, both = (
        scorer.read_options({"qualities": names}) for names in (["kind"], ["clear"], ["clear", "kind"])
    )
    first, second = await ask(cache, loaded, options=kind), await ask(cache, loaded, options=clear)
    cache.keep(first, {first.fragments[0]: part(0.1)})
    cache.keep(second, {second.fragments[0]: part(0.2)})
    assert values(await ask(cache, loaded, options=both)) == [0.2, 0.1]


ROOM_FOR_THREE = 3 * (ENTRY_OVERHEAD_BYTES + 10)


def test_what_was_used_longest_ago_goes_first():
    level = LocalLevel(ROOM_FOR_THREE)
    for key in "abc":
        level.put(key, key.encode() * 10, 60)
    assert level.get("a") == b"a" * 10
    level.put("d", b"d" * 10, 60)
    assert [level.get(key) is None for key in "abcd"] == [False, True, False, False]


def test_an_entry_ends_when_its_time_is_over():
    clock = ManualClock()
    level = LocalLevel(ROOM_FOR_THREE, clock)
    level.put("short", b"s", 10)
    level.put("long", b"l", 20)
    clock.seconds += 10
    assert (level.get("short"), level.get("long")) == (None, b"l")
    clock.seconds += 10
    assert level.get("long") is None
