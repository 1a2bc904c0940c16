"""Conversations of every client over the mock: answers, errors, late answers, retries of the opening."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from turnscore_client import (
    ConnectionFailedError,
    Conversation,
    DeadlineExceededError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    Turn,
    UnexpectedReplyError,
)
from turnscore_client._retry import OutOfTimeError
from turnscore_client.testing import MockTurnScore

Talk = Callable[..., Any]


@pytest.fixture(params=["client", "async_client", "grpc_client", "async_grpc_client"])
def talk(request: pytest.FixtureRequest) -> Talk:
    """Opens a conversation with the mock and does with it what an async script does, in both worlds alike."""

    async def in_sync(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        with getattr(mock, request.param)() as client, client.conversation(**given) as conversation:
            await script(_Awaited(conversation))

    async def in_async(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        async with getattr(mock, request.param)() as client, client.conversation(**given) as conversation:
            await script(conversation)

    def run(mock: MockTurnScore, script: Callable[..., Any], **given: Any) -> None:
        asyncio.run((in_async if request.param.startswith("async") else in_sync)(mock, script, **given))

    return run


class _Awaited:
    """A conversation of threads whose `say` may be awaited."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    async def say(self, *args: Any, **kwargs: Any) -> Any:
        return self.conversation.say(*args, **kwargs)

    async def say_messages(self, *args: Any, **kwargs: Any) -> Any:
        return self.conversation.say_messages(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conversation, name)


def test_the_mock_hears_messages_as_the_service_does(talk: Talk):
    mock = MockTurnScore(lambda request: {"engagement": len(request.context) / 10})
    calls = {"role": "assistant", "content": "one", "tool_calls": [{}]}

    async def script(conversation):
        assert conversation.opened.turns == 2
        assert await conversation.say_messages([{"role": "user", "content": [{"type": "file"}]}, calls]) is None
        with pytest.raises(InvalidRequestError) as refused:
            await conversation.say_messages([{"role": "assistant", "content": " "}])
        assert refused.value.field == "said.messages"
        scored = await conversation.say_messages([{"role": "tool"}, {"role": "assistant", "content": "two"}])
        assert (scored.index, scored.scores["engagement"].value) == (5, 0.2)
        assert [turn.text for turn in conversation.turns] == ["hi", "", "one two"]

    talk(mock, script, messages=[{"role": "system", "content": "p"}, {"role": "assistant", "content": "hi"}])


def test_system_turns_are_answered_by_their_scores_and_user_turns_by_nothing(talk: Talk):
    mock = MockTurnScore(lambda request: {"engagement": len(request.context) / 10})

    async def script(conversation):
        assert conversation.opened.scorers == ["engagement"]
        assert await conversation.say("user", "hi") is None
        first = await conversation.say("system", "hello")
        assert (first.index, first.scores["engagement"].value) == (1, 0.1)
        second = await conversation.say("system", "and?")
        assert second.dialogue["engagement"].mean == pytest.approx(0.15)
        assert [turn.text for turn in conversation.turns] == ["hi", "hello", "and?"]

    talk(mock, script)


def test_an_opening_sends_what_was_given_and_turns_what_is_left_of_their_time(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        assert conversation.opened.turns == 1
        await conversation.say("system", "a")
        await conversation.say("system", "b", deadline_ms=50)
        await conversation.say("system", "c", timeout_seconds=0.1)
        await conversation.say("user", "d")

    talk(
        mock,
        script,
        context=[("user", "hi")],
        scorers=["engagement"],
        deadline_ms=300,
        request_id="r-1",
        metadata={"a": "b"},
    )
    opening, *turns = [request.body for request in mock.requests]
    assert opening == {
        "open": {
            "context": [{"speaker": "user", "text": "hi"}],
            "scorers": ["engagement"],
            "deadline_ms": 300,
        }
    }
    assert [each["turn"].get("deadline_ms") for each in turns] == [300, 50, 100, None]
    assert (mock.requests[0].headers["x-request-id"], mock.requests[0].headers["a"]) == ("r-1", "b")


def test_a_refused_turn_is_raised_and_is_not_part_of_the_conversation(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        with pytest.raises(InvalidRequestError) as refused:
            await conversation.say("system", " ")
        assert refused.value.field == "turn.text"
        assert conversation.turns == ()
        with pytest.raises(InvalidRequestError) as refused:
            await conversation.say("bot", "hi")
        assert refused.value.field == "turn.speaker"
        assert (await conversation.say("system", "hi")).index == 0

    talk(mock, script)
    assert len(mock.requests) == 3  # the wrong speaker was never sent


def test_a_turn_that_could_not_be_scored_is_raised_once_and_stays_said(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        mock.fail_next("overloaded", retry_after_ms=20)
        with pytest.raises(OverloadedError) as refused:
            await conversation.say("system", "a")
        assert refused.value.retry_after_ms == 20
        assert [turn.text for turn in conversation.turns] == ["a"]
        assert (await conversation.say("system", "b")).index == 1

    talk(mock, script)
    assert mock.clock.sleeps == []


def test_an_opening_is_retried_as_a_call_is(talk: Talk, mock: MockTurnScore):
    mock.fail_next("overloaded", retry_after_ms=700)
    mock.break_next()

    async def script(conversation):
        assert (await conversation.say("system", "a")).index == 0

    talk(mock, script)
    assert len(mock.requests) == 4
    assert 0.7 <= mock.clock.sleeps[0] <= 0.77


@pytest.mark.parametrize("code", ["invalid_request", "unauthenticated", "internal"])
def test_an_opening_that_is_refused_for_good_is_raised_at_once(talk: Talk, mock: MockTurnScore, code: str):
    mock.fail_next(code)

    async def script(conversation):
        pytest.fail("it opened")

    with pytest.raises(Exception, match=code):
        talk(mock, script)
    assert len(mock.requests) == 1


def test_an_opening_stops_with_the_last_error(talk: Talk, mock: MockTurnScore):
    mock.fail_next("not_ready", retry_after_ms=60_000)

    async def script(conversation):
        pytest.fail("it opened")

    with pytest.raises(NotReadyError):
        talk(mock, script)


def test_a_turn_on_a_broken_connection_is_raised_and_not_said_twice(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        await conversation.say("user", "hi")
        mock.break_next()
        with pytest.raises(ConnectionFailedError):
            await conversation.say("system", "a")
        assert [turn.text for turn in conversation.turns] == ["hi", "a"]  # it may have been heard

    talk(mock, script, max_reopenings=0)
    assert len(mock.requests) == 3


def test_it_is_opened_anew_as_often_as_it_may_be(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        for text in ("a", "b"):
            mock.break_next()
            assert (await conversation.say("system", text)).scores
        mock.break_next()
        with pytest.raises(ConnectionFailedError):
            await conversation.say("system", "c")
        assert [turn.text for turn in conversation.turns] == ["a", "b", "c"]

    talk(mock, script, max_reopenings=2)


def test_places_of_messages_go_on_where_the_conversation_is_opened_anew(talk: Talk, mock: MockTurnScore):
    prompt, hi = {"role": "system", "content": "be nice"}, {"role": "user", "content": "hi"}
    calling, result = {"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "tool", "content": "b"}
    hello = {"role": "assistant", "content": "hello"}

    async def script(conversation):
        await conversation.say_messages([prompt, hi])
        mock.break_next()
        assert (await conversation.say_messages([hello])).index == 3
        assert (await conversation.say_messages([hi, calling, result, hello])).index == 7
        mock.break_next()
        assert (await conversation.say("system", "a")).index == 8
        mock.begin_drain()
        assert (await conversation.say_messages([hi, hello])).index == 10
        assert (await conversation.say_messages([hi, hello])).index == 12

    talk(mock, script, messages=[prompt])


def test_a_turn_that_finds_no_replica_is_raised_and_the_next_one_opens_the_conversation_anew(
    talk: Talk, mock: MockTurnScore
):
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


def run_out_of_time(conversation: Any, patched: pytest.MonkeyPatch) -> None:
    """From here on nothing comes in time."""
    line = getattr(conversation, "conversation", conversation)._line

    def slow(seconds_left):
        raise OutOfTimeError

    async def slow_async(seconds_left):
        raise OutOfTimeError

    patched.setattr(line, "receive", slow_async if inspect.iscoroutinefunction(line.receive) else slow)


def test_an_answer_that_is_not_turnscores_is_told(talk: Talk, mock: MockTurnScore, monkeypatch):
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


def test_draining_is_noticed_and_the_conversation_goes_on(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        assert not conversation.is_draining
        mock.begin_drain()
        assert (await conversation.say("system", "a")).index == 0
        assert conversation.is_draining
        assert (await conversation.say("system", "b")).index == 1

    talk(mock, script)


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_ones(talk: Talk, mock: MockTurnScore, monkeypatch):
    async def script(conversation):
        await conversation.say("user", "hi")
        with monkeypatch.context() as patched:
            run_out_of_time(conversation, patched)
            for text in ("late", "later"):
                with pytest.raises(DeadlineExceededError):
                    await conversation.say("system", text)
        assert (await conversation.say("system", "a b")).index == 3
        assert [turn.text for turn in conversation.turns] == ["hi", "late", "later", "a b"]

    talk(mock, script)


def test_the_turns_of_one_conversation_are_the_context_of_the_next(talk: Talk, mock: MockTurnScore):
    said: list[Turn] = []

    async def first(conversation):
        await conversation.say("user", "hi")
        await conversation.say("system", "hello")
        said.extend(conversation.turns)

    async def second(conversation):
        assert conversation.opened.turns == 2
        assert (await conversation.say("system", "again")).index == 2

    talk(mock, first)
    talk(mock, second, context=said)


def test_outside_its_with_a_conversation_says_so(mock: MockTurnScore):
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
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"request_id": "two words"}, "request_id"),
        ({"metadata": {"authorization": "a"}}, "metadata"),
    ],
)
def test_a_wrong_opening_is_refused_before_anything_is_sent(mock: MockTurnScore, given: dict, field: str):
    with mock.client() as client, pytest.raises(InvalidRequestError) as refused:
        client.conversation(**given)
    assert refused.value.field == field
    assert mock.requests == []
