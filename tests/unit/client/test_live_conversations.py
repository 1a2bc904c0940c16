"""Conversations of every client with the transport it is for, over real sockets of this machine."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from support.conditions import until
from support.fakes import POISON, FakeScorer
from support.files import movable
from support.transports import grpc_server, listening_service, settings_with
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
)


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
