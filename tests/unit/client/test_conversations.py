"""Conversations of every client over the mock: answers, errors, late answers, openings and reopenings."""

import asyncio

import pytest
from support.fakes import Threaded
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    UnexpectedReplyError,
)
from turnscore_client._mock import MockStream
from turnscore_client._retry import OutOfTimeError
from turnscore_client.testing import MockTurnScore


def test_user_turns_are_answered_by_their_scores_where_their_scorer_is_asked(talk):
    mock = MockTurnScore({"engagement": 0.5, "reaction": 0.2}, signals={"reaction": ["frustrated"]})

    async def script(conversation):
        heard = await conversation.say("user", "no, the other one")
        assert (heard.index, heard.scores["reaction"].signals) == (0, ["frustrated"])
        assert list((await conversation.say("system", "sorry")).scores) == ["engagement"]
        mock.fail_next("overloaded")
        with pytest.raises(OverloadedError):
            await conversation.say("user", "well?")
        last = await conversation.say_messages([{"role": "user", "content": "hello?"}])
        assert (last.index, last.dialogue["reaction"].turns) == (3, 2)

    talk(mock, script, scorers=["engagement", "reaction"])


def test_an_opening_sends_what_was_given_and_turns_what_is_left_of_their_time(talk, mock):
    async def script(conversation):
        assert conversation.opened.turns == 1
        await conversation.say("system", "a")
        await conversation.say("system", "b", deadline_ms=50)
        await conversation.say("system", "c", timeout_seconds=0.1)
        await conversation.say("user", "d")

    given = {"scorers": ["engagement"], "deadline_ms": 300}
    talk(mock, script, context=[("user", "hi")], **given, request_id="r-1", metadata={"a": "b"})
    opening, *turns = [request.body for request in mock.requests]
    assert opening == {"open": {"context": [{"speaker": "user", "text": "hi"}], **given}}
    assert [each["turn"].get("deadline_ms") for each in turns] == [300, 50, 100, 300]
    assert (mock.requests[0].headers["x-request-id"], mock.requests[0].headers["a"]) == ("r-1", "b")


def test_an_opening_is_retried_as_a_call_is(talk, mock):
    mock.fail_next("overloaded", retry_after_ms=700)
    mock.break_next()

    async def script(conversation):
        assert (await conversation.say("system", "a")).index == 0

    talk(mock, script)
    assert len(mock.requests) == 4
    assert 0.7 <= mock.clock.sleeps[0] <= 0.77


def run_out_of_time(conversation, patched):
    """From here on nothing comes in time."""

    async def slow(seconds_left):
        raise OutOfTimeError

    known = conversation._conversation._inner if isinstance(conversation, Threaded) else conversation
    patched.setattr(known._stream, "receive", slow)


def test_an_answer_that_is_not_turnscores_is_told(talk, mock, monkeypatch):
    async def script(conversation):
        mock.answer_next(200, b"<html>")
        with pytest.raises(UnexpectedReplyError):
            await conversation.say("system", "a")
        with monkeypatch.context() as patched:
            run_out_of_time(conversation, patched)
            with pytest.raises(DeadlineExceededError):
                await conversation.say("system", "late")
        assert (await conversation.say("system", "b")).scores
        assert [turn.text for turn in conversation.turns] == ["a", "late", "b"]

    talk(mock, script)


def test_outside_its_with_a_conversation_says_so(mock):
    with mock.client() as client:
        conversation = client.conversation()
        with pytest.raises(ConnectionFailedError, match="not open"):
            conversation.say("user", "hi")
        with conversation:
            conversation.say("user", "hi")
        with pytest.raises(ConnectionFailedError, match="not open"):
            conversation.say("user", "hi")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"context": [("bot", "hi")]}, "context.0.speaker"),
        ({"scorers": []}, "scorers"),
        ({"metadata": {"authorization": "a"}}, "metadata"),
    ],
)
def test_a_wrong_opening_is_refused_before_anything_is_sent(mock, given, field):
    with mock.client() as client, pytest.raises(InvalidRequestError) as refused:
        client.conversation(**given)
    assert refused.value.field == field
    assert mock.requests == []


def test_a_turn_around_a_tool_is_one_turn_where_the_conversation_is_reopened_within_it(talk, mock):
    hi, result = {"role": "user", "content": "hi"}, {"role": "tool", "content": "b"}
    calling = {"role": "assistant", "content": "let me see", "tool_calls": [{"id": "a"}]}
    hello = {"role": "assistant", "content": "hello"}

    async def script(conversation):
        assert await conversation.say_messages([hi, calling]) is None
        mock.break_next()
        assert await conversation.say_messages([result]) is None
        mock.break_next()
        scored = await conversation.say_messages([hello])
        assert (scored.index, scored.dialogue["engagement"].turns) == (4, 1)
        assert [turn.text for turn in conversation.turns] == ["hi", "let me see hello"]
        mock.break_next()
        assert (await conversation.say_messages([hi, hello])).index == 6

    talk(mock, script, messages=[{"role": "system", "content": "be nice"}])


def test_a_turn_that_finds_no_replica_is_raised_and_the_next_one_reopens_the_conversation(talk, mock):
    async def script(conversation):
        await conversation.say("user", "hi")
        mock.break_next()
        mock.fail_next("not_ready", retry_after_ms=60_000)
        with pytest.raises(NotReadyError):
            await conversation.say("user", "lost")
        assert (await conversation.say("system", "a")).index == 1
        assert [turn.text for turn in conversation.turns] == ["hi", "a"]
        mock.break_next()
        mock.fail_next("not_ready", retry_after_ms=60_000)
        for _ in range(2):
            with pytest.raises((NotReadyError, ConnectionFailedError), match=r"not_ready|max_reopenings is used up"):
                await conversation.say("system", "b")

    talk(mock, script, max_reopenings=3)


async def test_a_task_that_is_cancelled_while_it_opens_leaves_no_connection_behind(mock, monkeypatch):
    """No `async with` has begun that would close it."""
    closed = []

    async def interrupt(*_):
        raise asyncio.CancelledError

    async def close(line):
        closed.append(line)

    monkeypatch.setattr(MockStream, "receive", interrupt)
    monkeypatch.setattr(MockStream, "close", close)
    async with mock.async_client() as client:
        with pytest.raises(asyncio.CancelledError):
            async with client.conversation():
                pytest.fail("it opened")
    assert len(closed) == 1
