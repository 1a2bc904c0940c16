"""Lines in flight: in order, a bounded number at a pace that the service takes, with patience where it helps."""

import asyncio
import json
from contextlib import aclosing

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import line_of, patient_with
from turnscore_client import AsyncTurnScoreClient, DeadlineExceededError, OverloadedError
from turnscore_client._files.scoring import Pace, StoppedError, score_lines
from turnscore_client.testing import ManualClock, MockTurnScore
from turnscore_wire import Limits


class Gate:
    """A service that answers a line only when told to, and counts what waits."""

    def __init__(self):
        self.mock = MockTurnScore(lambda request: {"engagement": float(request.response)})
        self.waiting = {}
        self.most_in_flight = 0
        self.changed = asyncio.Condition()

    async def answer(self, request):
        event = asyncio.Event()
        async with self.changed:
            self.waiting[json.loads(request.content)["response"]] = event
            self.most_in_flight = max(self.most_in_flight, len(self.waiting))
            self.changed.notify_all()
        await event.wait()
        return self.mock.transport.handle_request(request)

    async def release(self, name):
        async with self.changed:
            await self.changed.wait_for(lambda: name in self.waiting)
            self.waiting.pop(name).set()

    def client(self):
        transport = httpx.MockTransport(self.answer)
        return AsyncTurnScoreClient("http://gate.test", transport=transport, timeout_seconds=1000.0)


async def test_outcomes_keep_the_lines_order_and_a_slow_line_bounds_how_many_are_read_ahead():
    gate = Gate()
    taken = 0

    def lines():
        nonlocal taken
        for number in range(1, 1001):
            taken = number
            yield line_of({"response": str(number)}, number)

    async with (
        gate.client() as client,
        aclosing(score_lines(client, lines(), None, patient_with(most=2), Limits())) as outcomes,
    ):
        first = asyncio.create_task(anext(outcomes))
        for number in range(2, 9):
            await gate.release(str(number))
        assert (taken, gate.most_in_flight) == (9, 2)
        await gate.release("1")
        found = [await first, *[await anext(outcomes) for _ in range(7)]]
    assert [line.number for line, *_ in found] == list(range(1, 9))
    assert [row["scores"]["engagement"]["value"] for _, row, _ in found] == [*map(float, range(1, 9))]


async def rows_of(mock, patient, count=19):
    lines = [line_of({"response": str(number)}, number) for number in range(1, count + 1)]
    async with mock.async_client(max_retries=0) as client:
        return [row async for _, row, _ in score_lines(client, lines, None, patient, Limits())]


async def test_a_key_that_is_not_taken_any_more_stops_the_run_at_once():
    mock = MockTurnScore()
    mock.fail_next("unauthenticated", "an API key is needed")
    with pytest.raises(StoppedError, match="an API key is needed"):
        await rows_of(mock, patient_with(mock.clock))


async def test_a_line_that_is_refused_while_something_small_is_answered_becomes_an_error_at_last():
    def scores(request):
        if request.response == "3":
            raise OverloadedError("too much in one line", retry_after_ms=100)
        return {"engagement": 0.5}

    async def probe(timeout):
        probed.append(timeout)

    mock, probed = MockTurnScore(scores), []
    rows = await rows_of(mock, patient_with(mock.clock, most=2, wait=5.0, probe=probe), 19)
    assert [(row["line"], row["error"]["code"]) for row in rows if "error" in row] == [(3, "overloaded")]
    assert probed == [10.0]


async def test_a_line_that_takes_long_gets_more_time_at_each_attempt():
    timeouts = []

    async def call(timeout):
        timeouts.append(timeout)
        if timeout < 35:
            raise DeadlineExceededError("no answer")
        return "scored"

    assert await patient_with(timeout=10.0, wait=300.0).ask(call) == "scored"
    assert timeouts == [10.0, 20.0, 40.0]


EVENTS = st.lists(st.tuples(st.sampled_from(["answer", "refuse", "gone"]), st.integers(0, 3000)), max_size=60)


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
