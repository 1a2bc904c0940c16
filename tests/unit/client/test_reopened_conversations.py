"""Conversations of every client that are reopened, over the mock: breaks, draining, no replica, places."""

from collections.abc import Callable
from typing import Any

import pytest
from turnscore_client import ConnectionFailedError, NotReadyError
from turnscore_client.testing import MockTurnScore

Talk = Callable[..., Any]


def test_it_is_reopened_as_often_as_it_may_be(talk: Talk, mock: MockTurnScore):
    async def script(conversation):
        for text in ("a", "b"):
            mock.break_next()
            assert (await conversation.say("system", text)).scores
        mock.break_next()
        with pytest.raises(ConnectionFailedError):
            await conversation.say("system", "c")
        assert [turn.text for turn in conversation.turns] == ["a", "b", "c"]

    talk(mock, script, max_reopenings=2)


def test_places_of_messages_go_on_where_the_conversation_is_reopened(talk: Talk, mock: MockTurnScore):
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


def test_a_turn_around_a_tool_is_one_turn_where_the_conversation_is_reopened_within_it(talk: Talk, mock: MockTurnScore):
    hi, result = {"role": "user", "content": "hi"}, {"role": "tool", "content": "b"}
    calling = {"role": "assistant", "content": "let me see", "tool_calls": [{"id": "a"}]}
    hello = {"role": "assistant", "content": "hello"}

    async def script(conversation):
        assert await conversation.say_messages([hi, calling]) is None
        mock.break_next()
        assert await conversation.say_messages([result]) is None
        mock.break_next()
        scored = await conversation.say_messages([hello])
        assert (scored.index, scored.dialogue["engagement"].turns) == (3, 1)
        assert [turn.text for turn in conversation.turns] == ["hi", "let me see hello"]
        mock.break_next()
        assert (await conversation.say_messages([hi, hello])).index == 5

    talk(mock, script)


def test_a_turn_that_finds_no_replica_is_raised_and_the_next_one_reopens_the_conversation(
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
