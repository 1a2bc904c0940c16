"""What the cache finds and never serves, what becomes of it when other models are served, and its breaker."""

import pytest
from support.cache_loads import DictLevel
from support.conditions import until
from support.fakes import FakeScorer, ManualClock, loaded_fake, sample
from support.fed import make_fed_scorer
from turnscore_core.score_entries import mark_key
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_service.cache.redis_level import Breaker, RedisLevel
from turnscore_service.cache.score_cache import ENTRY_OVERHEAD_BYTES, CacheLookup, LocalLevel, ScoreCache
from turnscore_service.settings.cache import CacheSettings
from turnscore_wire import TokenCount
from turnscore_wire.requests import ScorerChoice


async def ask(cache, loaded, options=None):
    turn = TurnToScore([], "a b c", options=options)
    lookup = CacheLookup(loaded=loaded)
    cache.look_up(lookup, turn, loaded.scorer.inputs_of(turn), ScorerChoice())
    await cache.find([lookup], 1)
    return lookup


def keep(cache, lookup, value=0.5):
    score = RawScore(value, tokens=TokenCount(used=3, dropped=0))
    cache.keep(lookup, dict.fromkeys(lookup.fragments, score))


def values(lookup):
    return [lookup.known[piece].value if piece in lookup.known else None for piece in lookup.fragments]


@pytest.mark.parametrize(("damage", "cause"), [(b"\x03", "unreadable"), (b"", "unreadable"), (b"\x02x", "stale")])
async def test_an_entry_that_cannot_be_read_is_a_miss_by_its_cause(damage, cause):
    loaded, shared = loaded_fake(FakeScorer()), DictLevel()
    cache = ScoreCache({"fake": loaded}, CacheSettings(local_max_bytes=0), shared)
    keep(cache, await ask(cache, loaded))
    shared.entries = dict.fromkeys(shared.entries, damage)
    before = sample("cache_misses_total", scorer="fake", cause=cause)
    assert values(await ask(cache, loaded)) == [None]
    assert sample("cache_misses_total", scorer="fake", cause=cause) == before + 1


async def test_pieces_kept_by_two_requests_at_once_are_both_kept(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "fed")
    loaded = loaded_fake(scorer, "fed")
    cache = ScoreCache({"fed": loaded}, CacheSettings())
    kind, clear, both = (
        scorer.read_options({"qualities": names}) for names in (["kind"], ["clear"], ["clear", "kind"])
    )
    first, second = await ask(cache, loaded, kind), await ask(cache, loaded, clear)
    keep(cache, first, 0.1)
    keep(cache, second, 0.2)
    assert values(await ask(cache, loaded, both)) == [0.2, 0.1]


async def test_scores_that_were_kept_are_found_again_by_their_own_version_alone():
    settings, shared = CacheSettings(), DictLevel()
    first, second, stays = (
        loaded_fake(FakeScorer()), loaded_fake(FakeScorer(), version="1.1.0"), loaded_fake(FakeScorer(), "stays"),
    )  # fmt: skip
    cache = ScoreCache({"fake": first, "stays": stays}, settings, shared)
    cache.take_mark("stays:1.0.0", b"cleared once")
    for each in (first, stays):
        keep(cache, await ask(cache, each))
    following = ScoreCache({"fake": second, "stays": stays}, settings, before=cache)
    assert (await ask(following, second)).missing  # another version's score
    assert not (await ask(following, stays)).missing  # found with the mark that was known before
    back = ScoreCache({"fake": first, "stays": stays}, settings, before=following)
    lookup = await ask(back, first)
    assert not lookup.missing
    keep(back, lookup)
    assert len(shared.entries) == 2  # the shared level is the same throughout


class DictStore:
    """A Redis that is a dict; a sick one answers nothing."""

    def __init__(self):
        self.entries = {}
        self.is_sick = False

    async def read(self, keys):
        if self.is_sick:
            raise ConnectionError("gone")
        return [self.entries.get(key) for key in keys]

    async def write(self, entries):
        return []

    async def drop_idle(self):
        pass

    async def close(self):
        pass


@pytest.mark.parametrize("is_sick", [False, True])
async def test_marks_of_the_next_models_are_known_before_anything_of_theirs_is_read(is_sick):
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


SETTINGS = CacheSettings(breaker_failures=3, breaker_window=6, breaker_retry_seconds=1, breaker_max_retry_seconds=5)


def closed():
    breaker = Breaker("test", SETTINGS)
    breaker.begin_probe()
    breaker.end_probe(has_failed=False)
    return breaker


def record(breaker, ends):
    """`x` for each call that failed, `.` for each that did not."""
    for end in ends:
        breaker.record(has_failed=end == "x")


def open_and_probe(breaker, *, has_failed):
    record(breaker, "xxx")
    pause = breaker.pause_seconds()
    breaker.begin_probe()
    breaker.end_probe(has_failed=has_failed)
    return pause


@pytest.mark.parametrize(
    ("ends", "is_closed"), [("xx", True), ("xxx", False), ("x.x.x", False), ("x..x..x..x", True), ("." * 50, True)]
)
def test_it_opens_when_too_many_of_the_last_calls_failed(ends, is_closed):
    breaker = closed()
    record(breaker, ends)
    assert breaker.is_closed == is_closed


def test_nothing_but_a_probe_closes_it():
    breaker = closed()
    record(breaker, "xxx......")
    assert breaker.state == "open"
    breaker.begin_probe()
    record(breaker, "......")
    assert (breaker.state, breaker.is_closed) == ("half_open", False)
    breaker.end_probe(has_failed=True)
    assert breaker.state == "open"
    breaker.begin_probe()
    breaker.end_probe(has_failed=False)
    assert breaker.is_closed


def test_it_waits_twice_as_long_each_time_up_to_the_most():
    breaker = closed()
    record(breaker, "xxx")
    pauses = []
    for _ in range(5):
        pauses.append(breaker.pause_seconds())
        breaker.begin_probe()
        breaker.end_probe(has_failed=True)
    assert pauses == [1, 2, 4, 5, 5]


def test_one_that_opens_soon_after_a_good_probe_waits_longer_too():
    breaker = closed()
    assert [open_and_probe(breaker, has_failed=False) for _ in range(3)] == [1, 2, 4]
    record(breaker, "......")
    assert open_and_probe(breaker, has_failed=False) == 1
