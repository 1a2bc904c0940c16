"""The level in the process: bounded, and never older than it was told."""

from support.clocks import ManualClock
from turnscore_service.cache.score_cache import ENTRY_OVERHEAD_BYTES, LocalLevel

ROOM_FOR_THREE = 3 * (ENTRY_OVERHEAD_BYTES + 10)


def test_what_was_used_longest_ago_goes_first():
    level = LocalLevel(ROOM_FOR_THREE)
    for key in "abc":
        level.put(key, key.encode() * 10, 60)
    assert level.get("a") == b"a" * 10
    level.put("d", b"d" * 10, 60)
    assert [level.get(key) is None for key in "abcd"] == [False, True, False, False]


def test_an_entry_larger_than_the_level_leaves_the_others():
    level = LocalLevel(ROOM_FOR_THREE)
    level.put("a", b"a", 60)
    level.put("b", b"b" * ROOM_FOR_THREE, 60)
    assert (level.get("a"), level.get("b")) == (b"a", None)


def test_an_entry_ends_when_its_time_is_over():
    clock = ManualClock()
    level = LocalLevel(ROOM_FOR_THREE, clock)
    level.put("short", b"s", 10)
    level.put("long", b"l", 20)
    clock.seconds += 10
    assert (level.get("short"), level.get("long")) == (None, b"l")
    clock.seconds += 10
    assert level.get("long") is None


def test_an_entry_without_time_is_not_kept_and_leaves_the_others():
    level = LocalLevel(ROOM_FOR_THREE, ManualClock())
    level.put("now", b"n", 0)
    level.put("later", b"l", 10)
    assert (level.get("now"), level.get("later")) == (None, b"l")
