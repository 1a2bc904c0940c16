"""Requests as they are decoded: each fault is refused by its field, and bounded before it is looked at."""

import asyncio
import gc
import json

import pytest
from turnscore_core.errors import InvalidRequestError, ScoringError, TooLargeError
from turnscore_service.api.calls import decode, decode_batch, validate
from turnscore_service.api.grpc.endpoints import read_message
from turnscore_service.scheduling.fairness import CooperativeScheduler, TimeSlice
from turnscore_wire import ConversationMessage, DialogueRequest, Limits, ScoreRequest
from turnscore_wire.v1 import turnscore_pb2

USER = {"speaker": "user", "text": "a"}
MANY = [{}] * 100_000
WRONG_REQUESTS = [
    (b"", "body"), (b'{"response": "a"', "body"), (b"\xff\xfe", "body"), (b"[" * 100_000, "body"),
    (b"{}", "response"), (b'{"response": " \\n"}', "response"), (b'{"response": "a\\u0000"}', "response"),
    (b'{"response": "\\ud800"}', "response"),
    (b'{"response": "a", "context": [{"speaker": "bot", "text": "b"}]}', "context.0.speaker"),
    (b'{"response": "a", "context": [{"speaker": "user"}]}', "context.0.text"),
    (b'{"response": "a", "context": [{"speaker": "user", "text": "b", "mood": 1}]}', "context.0.mood"),
    (b'{"response": "a", "scorers": []}', "scorers"), (b'{"response": "a", "deadline_ms": 0}', "deadline_ms"),
    (b'{"response": "a", "options": {"fed": 1}}', "options.fed"),
    (b'{"response": "a", "unheard": 1}', "unheard"),
    (b'{"response": "a", "options": {"fed": {"\\ud800": 1}}}', "options"),
    (b'{"response": "a", "\\ud800": 1}', "body"), ('{"response": "a"}'.encode("utf-16"), "body"),
]  # fmt: skip


async def decode_items(body, limits):
    """The items as a small batch has them; a large one, which takes its turns, has the same."""
    small, large = [
        await asyncio.gather(
            decode_batch(body, limits, TimeSlice(CooperativeScheduler(), is_large=is_large)), return_exceptions=True
        )
        for is_large in (False, True)
    ]
    assert str(small) == str(large)
    [found] = small
    if isinstance(found, BaseException):
        raise found
    return found


@pytest.mark.parametrize(("body", "field"), WRONG_REQUESTS)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(body, field):
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, body)
    assert refused.value.field == field


def test_no_message_repeats_what_was_sent():
    body = b'{"response": "a", "context": [{"speaker": "my secret", "text": "my secret"}], "my secret": 1}'
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, body)
    assert "my secret" not in refused.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [(b"[]", "body"), (b'{"items": []}', "items"), (b'{"items": [{"response": "a"}], "unheard": 1}', "unheard")],
)
async def test_what_is_no_batch_is_refused_whole(body, field):
    with pytest.raises(InvalidRequestError) as refused:
        await decode_items(body, Limits())
    assert refused.value.field == field


async def test_a_batch_of_too_many_items_is_refused_before_they_are_looked_at():
    body = b'{"items": [' + b"1," * 999 + b"1]}"
    with pytest.raises(TooLargeError) as refused:
        await decode_items(body, Limits(max_items=999))
    assert refused.value.field == "items"


def test_a_long_unknown_field_is_cut_in_the_refusal():
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, b'{"response": "a", "' + b"x" * 5000 + b'": 1}')
    assert refused.value.field == "x" * 200


MANY_FIELDS = {f"{n:x}": 1 for n in range(9_000)}
ITEMS = [b"[]", b"3", json.dumps(MANY_FIELDS).encode(), *(body for body, field in WRONG_REQUESTS if field != "body")]


@pytest.mark.parametrize("body", ITEMS)
async def test_an_item_is_refused_in_the_words_it_would_be_refused_in_alone(body):
    with pytest.raises(InvalidRequestError) as alone:
        decode(ScoreRequest, body)
    [item] = await decode_items(b'{"items": [%s]}' % body, Limits())
    assert isinstance(item, InvalidRequestError)
    assert item.message == alone.value.message


MANY_FIELDED = [
    (MANY_FIELDS, "body"),
    ({"response": "a", "context": [USER, MANY_FIELDS]}, "context.1"),
    ({"response": "a", "options": {name: {} for name in MANY_FIELDS}}, "options"),
]


@pytest.mark.parametrize(("fields", "field"), MANY_FIELDED)
def test_an_object_of_very_many_fields_is_refused_without_noting_each(fields, field):
    with pytest.raises(InvalidRequestError, match="more than 64 fields") as refused:
        decode(ScoreRequest, json.dumps(fields).encode())
    assert refused.value.field == field


TOO_MANY = [
    (ScoreRequest, {"messages": [{"role": "user", "content": "a"}] * 1024 + [{"role": "unknown"}]}, "messages"),
    (DialogueRequest, {"messages": [{"role": "user", "content": [{"type": "file"}] * 5000}, {}]}, "messages"),
    (DialogueRequest, {"messages": [{"role": "tool", "content": [{"type": "file"}] * 5000}, {}]}, "messages"),
    (ConversationMessage, {"open": {"messages": [{"role": "user"}] * 2000}}, "open.messages"),
    (ConversationMessage, {"messages": {"messages": [{"role": "user"}] * 2000}}, "messages.messages"),
    (DialogueRequest, {"turns": [USER] * 1024 + [{"speaker": "unknown"}]}, "turns"),
    (ScoreRequest, {"response": "a", "context": [USER] * 1024 + [{"speaker": "unknown"}]}, "context"),
    (ConversationMessage, {"open": {"context": [USER] * 1024 + [{"speaker": "unknown"}]}}, "open.context"),
]


@pytest.mark.parametrize(("kind", "fields", "where"), TOO_MANY)
def test_too_many_turns_messages_or_parts_are_refused_before_they_are_looked_at(kind, fields, where):
    for read, given in ((decode, json.dumps(fields).encode()), (validate, fields)):
        with pytest.raises(TooLargeError) as refused:
            read(kind, given, Limits())
        assert refused.value.field == where


LONG_LISTS = [
    (ScoreRequest, {"context": MANY}, "context"),
    (DialogueRequest, {"turns": MANY}, "turns"),
    (ScoreRequest, {"messages": MANY}, "messages"),
    (ScoreRequest, {"messages": [{"parts": MANY}]}, "messages"),
    (ConversationMessage, {"open": {"context": MANY}}, "open.context"),
    (ConversationMessage, {"open": {"messages": MANY}}, "open.messages"),
    (ConversationMessage, {"messages": {"messages": MANY}}, "messages.messages"),
]


@pytest.mark.parametrize(("kind", "sent", "where"), LONG_LISTS)
def test_of_a_list_that_is_too_long_a_protobuf_message_is_not_read(kind, sent, where):
    message = getattr(turnscore_pb2, kind.__name__)
    fields = read_message(message, message(**sent).SerializeToString(), Limits())
    assert str(fields).count("None") == len(MANY)
    with pytest.raises(TooLargeError, match="100000") as refused:
        validate(kind, fields, Limits())
    assert refused.value.field == where


@pytest.mark.parametrize("end", [b"", b"}"])
def test_a_large_body_is_parsed_without_collections_of_garbage(end):
    lists = 100_000
    body = json.dumps({"messages": [{"role": "system", "content": [[]] * lists}]}).encode() + end
    collected = []
    gc.callbacks.append(lambda phase, info: collected.append(info) if phase == "start" else None)
    try:
        with pytest.raises(ScoringError):
            decode(ScoreRequest, body, Limits())
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    assert end or len(collected) < lists / gc.get_threshold()[0] / 10
