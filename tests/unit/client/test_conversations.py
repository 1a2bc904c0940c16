"""Conversations of every client, over the mock and over real sockets: answers, errors, openings and reopenings."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from support.conditions import until
from support.fakes import POISON, FakeScorer, Threaded
from support.files import movable
from support.transports import grpc_server, listening_service, settings_with
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    InternalError,
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


WRONG_OPENINGS = [
    ({"context": [("bot", "hi")]}, "context.0.speaker"),
    ({"scorers": []}, "scorers"),
    ({"metadata": {"authorization": "a"}}, "metadata"),
]


@pytest.mark.parametrize(("given", "field"), WRONG_OPENINGS)
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


@pytest.fixture(params=["http-sync", "http-async", "grpc-sync", "grpc-async"])
def kind(request):
    """Which transport, through which client."""
    return request.param


@pytest.fixture
def service(kind):
    """The service behind its real server: `async with service(settings, fake=...) as (address, runtime)`."""

    @asynccontextmanager
    async def start(settings=None, **scorers):
        if kind.startswith("grpc"):
            async with grpc_server(settings, **(scorers or {"fake": FakeScorer()})) as (server, runtime):
                yield f"127.0.0.1:{server.port}", runtime
        else:
            async with listening_service(settings, **scorers) as served:
                yield served

    return start


async def test_a_conversation_with_the_real_service(live, service):
    async with service() as (address, _), live(address, request_id="r-1", context=[("user", "q")]) as conversation:
        assert (conversation.opened.request_id, conversation.opened.turns) == ("r-1", 1)
        assert await conversation.say("user", "hi") is None
        scored = await conversation.say("system", "one two")
        assert (scored.index, scored.scores["fake"].value, scored.dialogue["fake"].turns) == (2, 0.02, 1)
        with pytest.raises(InvalidRequestError):
            await conversation.say("system", " ")
        with pytest.raises(InternalError) as failed:
            await conversation.say("system", POISON)
        assert failed.value.request_id == "r-1"
        assert (await conversation.say("system", "one")).index == 4


async def test_messages_are_handed_over_as_a_chatbot_has_them(live, service):
    calls = {"role": "assistant", "content": "one", "tool_calls": [{}]}
    said = [{"role": "system", "content": "prompt"}, {"role": "assistant", "content": "hi"}]
    async with service() as (address, _), live(address, messages=said) as conversation:
        assert conversation.opened.turns == 2
        assert await conversation.say_messages([{"role": "user", "content": [{"type": "input_audio"}]}, calls]) is None
        with pytest.raises(InvalidRequestError) as refused:
            await conversation.say_messages([{"role": "user", "content": [{"type": "txt"}]}])
        assert refused.value.field == "messages.messages.0.content.0.type"
        scored = await conversation.say_messages([{"role": "tool"}, {"role": "assistant", "content": "two"}])
        assert (scored.index, scored.scores["fake"].value) == (5, 0.02)
        assert [turn.text for turn in conversation.turns] == ["hi", "", "one two"]


async def test_leaving_closes_the_conversation_at_the_service(live, service):
    async with service() as (address, runtime):
        async with live(address) as conversation:
            await conversation.say("user", "hi")
        await asyncio.wait_for(runtime.conversations.wait_until_empty(), 30)
    assert REGISTRY.get_sample_value("turnscore_open_conversations") == 0


async def test_the_refusal_of_a_handshake_is_typed(live, service):
    settings = settings_with(conversations={"max_open": 1})
    async with service(settings) as (address, _), live(address) as first:
        await first.say("user", "hi")
        with pytest.raises(OverloadedError) as refused:
            async with live(address):
                pytest.fail("it opened")
    assert refused.value.retry_after_ms == 1000
    assert refused.value.request_id


async def test_a_conversation_that_ended_says_why_at_the_next_turn(live, service):
    settings = settings_with(conversations={"idle_seconds": 0.5})
    async with service(settings) as (address, runtime), live(address, max_reopenings=0) as conversation:
        await asyncio.wait_for(runtime.conversations.wait_until_empty(), 30)
        with pytest.raises(DeadlineExceededError, match="no message arrived"):
            await conversation.say("user", "hi")
        with pytest.raises(ConnectionFailedError):
            await conversation.say("user", "hi")
        assert [turn.text for turn in conversation.turns] == ["hi"]  # the first was refused, the second may be heard


async def test_draining_is_noticed_and_its_end_is_typed(live, service):
    async with service() as (address, runtime), live(address) as conversation:
        runtime.begin_drain()
        assert (await conversation.say("system", "a")).index == 0
        assert conversation.is_draining
        await runtime.end_conversations()
        with pytest.raises(NotReadyError):
            await conversation.say("system", "b")


@pytest.mark.parametrize("end", ["killed", "drained"])
async def test_a_conversation_goes_on_with_another_replica_as_if_nothing_had_been(kind, live, service, end):
    said = [("user", "hi"), ("system", "a b c"), ("user", "so"), ("system", "a"), ("system", "a b")]
    async with service(fake=FakeScorer()) as (address, _), live(address) as whole:
        expected = [await whole.say(*turn) for turn in said]
    one = FakeScorer()
    async with (
        service(fake=one) as (first, runtime),
        service(fake=FakeScorer()) as (second, _),
        movable(first) as (line, move),
        # gRPC may open the next stream on the connection that is just breaking: an opening is tried again.
        live(line, client={"max_retries": 5}) as conversation,
    ):
        found = [await conversation.say(*turn) for turn in said[:2]]
        if end == "killed":  # in the middle of a turn
            one.gate.clear()
            found.append(await conversation.say(*said[2]))
            saying = asyncio.create_task(conversation.say(*said[3]))
            await until(lambda: len(one.batches) == 2)
            await move(second)
            found.append(await saying)
            one.gate.set()
        else:
            runtime.begin_drain()
            found.append(await conversation.say(*said[2]))
            await runtime.end_conversations()
            await move(second, leaving=kind.startswith("http"))  # gRPC stays with an open connection
            found.append(await conversation.say(*said[3]))
        found.append(await conversation.say(*said[4]))
        assert [(each.speaker, each.text) for each in conversation.turns] == said
    for got, wanted in zip(found, expected, strict=True):
        if wanted is None:
            assert got is None
        else:
            assert (got.index, got.scores["fake"].value) == (wanted.index, wanted.scores["fake"].value)
            assert got.dialogue["fake"].model_dump() == pytest.approx(wanted.dialogue["fake"].model_dump())


async def test_whoever_is_cancelled_in_a_turn_does_not_get_its_answer_for_the_next(kind, live, service):
    if kind.endswith("-sync"):
        return  # a thread cannot be cancelled
    scorer = FakeScorer()
    scorer.gate.clear()
    async with service(fake=scorer) as (address, _), live(address) as conversation:
        saying = asyncio.create_task(conversation.say("system", "a b c"))
        assert await asyncio.to_thread(scorer.started.wait, 30)
        saying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saying
        scorer.gate.set()
        assert (await conversation.say("system", "a")).index == 1
        assert [turn.text for turn in conversation.turns] == ["a b c", "a"]


async def test_neither_the_key_nor_what_was_said_is_logged(live, service, caplog):
    caplog.set_level(logging.INFO, "uvicorn.error")  # as the service sets it
    caplog.set_level(logging.DEBUG)
    async with service() as (address, _), live(address) as conversation:
        await conversation.say("system", "said in private")
    assert not [each for each in caplog.messages if "s3cret" in each or "said in private" in each]
