"""Messages in a live conversation: what is heard, what is scored in which context, and what is not taken."""

from typing import Any

import pytest
from support.conversations import talking
from support.fakes import FakeScorer
from turnscore_service.settings.service import Settings
from turnscore_wire import Limits

pytestmark = pytest.mark.usefixtures("nothing_is_left")

ASKED = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]}
CALLS = {"role": "assistant", "content": "one", "tool_calls": [{}]}
RESULT = {"role": "tool", "content": "secret"}


def told(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def test_what_messages_end_with_is_scored_once_the_tools_are_done():
    seen: list[list[str]] = []

    class Looking(FakeScorer):
        def encode(self, turns: Any) -> Any:
            seen.extend([each.text for each in turn.context] for turn in turns)
            return super().encode(turns)

    async with talking(fake=Looking()) as (channel, _, _):
        channel.tell({"open": {"messages": [{"role": "system", "content": "p"}, told("hi")]}})
        channel.tell({"messages": {"messages": [ASKED, CALLS]}})
        channel.tell({"messages": {"messages": [RESULT, told("two three")]}})
        channel.say("user", "and?")
        channel.tell({"messages": {"messages": [told("so.")]}})
        opened, waits, first, heard, second = [await channel.hear() for _ in range(5)]
    assert opened.opened.turns == 2
    assert (waits.ack.index, waits.ack.skipped) == (3, 1)
    assert (first.scored.index, first.scored.skipped, first.scored.scores["fake"].value) == (5, 0, 0.03)
    assert (heard.ack.index, second.scored.index) == (6, 7)
    assert second.scored.dialogue["fake"].turns == 2
    assert seen == [["hi", "look"], ["hi", "look", "one two three", "and?"]]


async def test_messages_that_are_not_taken_leave_the_conversation_as_it_was():
    small = Settings(limits=Limits(max_text_chars=9, max_turns=3))
    async with talking(small) as (channel, _, _):
        channel.tell({"messages": {"messages": [CALLS]}})
        channel.tell({"messages": {"messages": [RESULT, told("x" * 10)]}})
        channel.tell({"messages": {"messages": [told(" ")]}})
        channel.tell({"messages": {"messages": [RESULT] * 3}})
        channel.tell({"messages": {"messages": [told("two")]}})
        channel.tell({"messages": {"messages": [told("a"), told("b"), ASKED]}})
        replies = [await channel.hear() for _ in range(6)]
    assert [(each.error.code, each.error.field) if each.error else None for each in replies] == [
        None,
        ("too_large", "messages.messages.1.content"),
        ("invalid_request", "messages.messages"),
        ("too_large", "messages.messages"),
        None,
        ("too_large", "messages"),
    ]
    assert (replies[4].scored.index, replies[4].scored.scores["fake"].value) == (1, 0.02)
