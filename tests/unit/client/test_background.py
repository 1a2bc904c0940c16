"""Scoring in the background: the chatbot waits for nothing, gets no error, and its end is clean."""

import asyncio
import logging

import pytest
from support.conditions import until
from turnscore_client import AsyncBackgroundScorer, InvalidRequestError, OverloadedError


class HeldClient:
    """A client whose answers wait until the test lets them go."""

    def __init__(self, client):
        self._client = client
        self.gate = asyncio.Event()
        self.started = 0

    async def score(self, **fields):
        self.started += 1
        await self.gate.wait()
        return await self._client.score(**fields)


@pytest.fixture
async def held(mock):
    async with mock.async_client(max_retries=0) as client:
        yield HeldClient(client)


async def test_every_turn_gets_its_outcome_with_its_tag(held, mock):
    told = []
    held.gate.set()
    async with AsyncBackgroundScorer(held, told.append, scorers=["engagement"]) as background:
        assert background.submit("hello", [("user", "hi")], tag="a")
        assert background.submit("hello again", tag="b")
        messages = [{"role": "assistant", "content": "and again"}]
        assert background.submit(messages=messages, tag="c")
        messages.append({"role": "user", "content": "what was said after it"})
        await background.wait_until_idle()
        assert {each.tag: each.reply.scores["engagement"].value for each in told} == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert [request.body.get("response") for request in mock.requests] == ["hello", "hello again", None]
    assert mock.requests[2].body["messages"] == messages[:1]
    assert mock.requests[0].body["context"] == [{"speaker": "user", "text": "hi"}]
    assert mock.requests[0].body["scorers"] == ["engagement"]


async def test_a_user_s_turn_is_scored_by_a_scorer_of_user_turns(held, mock):
    mock.scores, mock.signals = {"reaction": 0.2}, {"reaction": ["frustrated"]}
    told = []
    held.gate.set()
    async with AsyncBackgroundScorer(held, told.append, scorers=["reaction"]) as background:
        background.submit("no!", [("system", "hi")], speaker="user")
        background.submit(messages=[{"role": "user", "content": "no!"}])
        await background.wait_until_idle()
    assert [each.reply.scores["reaction"].signals for each in told] == [["frustrated"]] * 2


async def test_handing_over_waits_for_nothing_and_what_finds_no_room_is_dropped(held):
    told = []
    async with AsyncBackgroundScorer(held, told.append, max_waiting=2, concurrency=1) as background:
        assert background.submit("one")
        await until(lambda: held.started == 1)
        assert [background.submit(text) for text in ("two", "three", "four", "five")] == [True, True, False, False]
        assert (background.dropped, told) == (2, [])
        held.gate.set()
    assert len(told) == 3
    assert background.dropped == 2


async def test_a_thread_hands_turns_over_as_the_loop_does(held):
    told = []
    held.gate.set()
    async with AsyncBackgroundScorer(held, told.append) as background:
        assert await asyncio.to_thread(background.submit, "hello")
        await until(lambda: len(told) == 1)
    assert told[0].error is None


async def test_errors_are_outcomes_and_never_the_bots(held, mock):
    held.gate.set()
    mock.fail_next("overloaded", retry_after_ms=20)
    told = []
    async with AsyncBackgroundScorer(held, told.append, concurrency=1) as background:
        assert background.submit("first")
        assert background.submit(" ")
        assert background.submit("a", 7)
        assert background.submit("last", [("bot", "hi")])
    assert [type(each.error) for each in told] == [OverloadedError, *[InvalidRequestError] * 3]
    assert all(each.reply is None for each in told)


async def test_a_callback_that_fails_stops_nothing_and_is_logged_without_words(held, caplog):
    held.gate.set()
    told = []

    async def tell(scored):
        told.append(scored.tag)
        if scored.tag == 1:
            raise RuntimeError("said in private")

    with caplog.at_level(logging.DEBUG):
        async with AsyncBackgroundScorer(held, tell, concurrency=1) as background:
            for tag in (1, 2):
                background.submit("hello", tag=tag)
    assert told == [1, 2]
    [logged] = [each for each in caplog.messages if "outcome" in each]
    assert "RuntimeError" in logged
    assert "private" not in caplog.text


async def test_the_end_waits_for_what_was_handed_over_but_not_for_ever(held):
    told = []
    background = AsyncBackgroundScorer(held, told.append, concurrency=1, goodbye_seconds=0.05)
    async with background:
        for _ in range(3):
            background.submit("never answered")
        await until(lambda: held.started == 1)
    assert (told, background.dropped) == ([], 3)
    assert not background._tasks
    assert not background.submit("too late")
