"""The pace: it never lets more begin than it says, finds what a service can take, and waits when it is told to."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from turnscore_client._files.scoring import Pace
from turnscore_client.testing import ManualClock

EVENTS = st.lists(st.tuples(st.sampled_from(["answer", "refuse", "gone"]), st.integers(0, 3000)), max_size=60)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 64), EVENTS)
def test_whatever_comes_the_limit_stays_within_its_bounds_and_hints_are_kept(most, events):
    async def live():
        clock = ManualClock()
        pace, is_refused = Pace(most, clock), False
        for kind, hint_ms in events:
            began_in = await pace.begin()
            before, refused_before = clock.seconds, is_refused
            is_refused = kind != "answer"
            if kind == "answer":
                pace.answered()
            else:
                assert pace.refused(began_in, hint_ms, is_gone=kind == "gone") == hint_ms / 1000
            pace.end()
            assert 1 <= pace.limit <= most
            if kind == "gone" or (is_refused and refused_before):
                await pace.begin()
                assert clock.seconds >= before + hint_ms / 1000
                pace.end()

    asyncio.run(live())
