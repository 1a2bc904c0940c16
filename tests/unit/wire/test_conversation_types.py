"""The messages of a conversation: what is taken, what is refused, and that readers skip what they do not know."""

import pytest
from pydantic import ValidationError
from turnscore_wire import ConversationMessage, ConversationReply, describe_refusal

TURN = {"speaker": "system", "text": "hello"}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "body"),
        ({"open": {}, "turn": TURN}, "body"),
        ({"turn": {"speaker": "bot", "text": "hi"}}, "turn.speaker"),
        ({"turn": {**TURN, "deadline_ms": 0}}, "turn.deadline_ms"),
        ({"open": {"context": [{"speaker": "user"}]}}, "open.context.0.text"),
        ({"open": {}, "close": {}}, "close"),
        ({"messages": {"messages": [{"role": "user", "content": [{}]}]}}, "messages.messages.0.content.0.type"),
        ({"messages": {"messages": [{"role": "tool"}]}, "turn": TURN}, "body"),
    ],
)
def test_a_message_that_is_wrong_names_its_field(message, field):
    with pytest.raises(ValidationError) as refused:
        ConversationMessage.model_validate(message)
    assert describe_refusal(refused.value)[0] == field


def test_a_reader_skips_what_it_does_not_know():
    reply = ConversationReply.model_validate({"ack": {"index": 3, "mood": 1}, "applause": {}})
    assert reply == ConversationReply.model_validate({"ack": {"index": 3}})
    assert not ConversationReply.model_validate({"applause": {}}).model_dump(exclude_none=True)
