"""Live conversations over gRPC: the messages of turnscore.proto, how they end, and what a cut leaves."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from support.conditions import until
from support.fakes import FakeScorer, sample
from support.transports import error_of, grpc_stub, refusal, settings_with
from turnscore_wire import ConversationReply
from turnscore_wire.v1 import to_fields, turnscore_pb2


@asynccontextmanager
async def conversation(settings=None, scorer=None, **options):
    """An open stream, and the runtime behind it."""
    async with grpc_stub(settings, fake=scorer or FakeScorer()) as (stub, runtime):
        yield stub.ScoreStream(**options), runtime


def turn(speaker, text):
    return turnscore_pb2.ConversationMessage(turn={"speaker": f"SPEAKER_{speaker.upper()}", "text": text})


async def say(stream, speaker, text):
    return await tell(stream, turn(speaker, text))


async def tell(stream, message):
    await stream.write(message)
    return await hear(stream)


async def hear(stream):
    return ConversationReply.model_validate(to_fields(await asyncio.wait_for(stream.read(), 30)))


async def test_a_caller_that_has_said_everything_still_gets_every_answer():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with conversation(scorer=scorer) as (stream, _):
        for text in ("a", "a b", "a b c"):
            await stream.write(turn("system", text))
        await stream.done_writing()
        await asyncio.to_thread(scorer.started.wait)
        scorer.gate.set()
        heard = [(await hear(stream)).scored for _ in range(3)]
        assert [(scored.index, scored.scores["fake"].value) for scored in heard] == [(0, 0.01), (1, 0.02), (2, 0.03)]
        assert await stream.read() is grpc.aio.EOF


ENDS = [
    ({}, [turnscore_pb2.ConversationMessage(open={"scorers": ["mood"]})], "invalid_request"),
    ({}, [turnscore_pb2.ConversationMessage()], "invalid_request"),
    ({"conversations": {"max_bytes": 10}}, [turn("user", "a" * 20)], "too_large"),
    ({"conversations": {"idle_seconds": 0.05}}, [], "deadline_exceeded"),
    ({"conversations": {"max_open": 1}}, [], "overloaded"),
]


@pytest.mark.parametrize(("groups", "messages", "code"), ENDS)
async def test_a_conversation_that_the_service_ends_says_why(groups, messages, code):
    async with grpc_stub(settings_with(**groups), fake=FakeScorer()) as (stub, _):
        other = stub.ScoreStream()
        await other.initial_metadata()  # takes the only place where there is but one
        if code != "overloaded":
            other.cancel()
        stream = stub.ScoreStream(metadata=[("x-request-id", "mine-1")])
        for message in messages:
            await stream.write(message)
        told = error_of(await refusal(stream.read()))
        other.cancel()
    assert (told.error.code, told.request_id) == (code, "mine-1")


def counted(code):
    return sample("requests_total", transport="grpc", call="conversation", code=code)


# The deadline leaves time for the stream to open on a busy machine.
@pytest.mark.parametrize(("timeout", "code"), [(None, "departed"), (2.0, "deadline_exceeded")])
async def test_a_stream_cut_in_the_middle_leaves_nothing_behind(timeout, code):
    scorer, before = FakeScorer(), counted(code)
    scorer.gate.clear()
    async with conversation(scorer=scorer, timeout=timeout) as (stream, _):
        for number in range(3):
            await stream.write(turn("system", f"turn {number}"))
        await asyncio.to_thread(scorer.started.wait)
        if timeout is None:
            stream.cancel()
        await until(lambda: sample("open_conversations") == 0)
        await until(lambda: sample("items_in_flight", scorer="fake") == 0)
        scorer.gate.set()
        await until(lambda: sample("queued_items", scorer="fake") == 0)
        await until(lambda: counted(code) == before + 1)
    assert len(scorer.batches) == 1


async def test_conversations_are_counted_once_by_how_they_ended():
    codes = ("ok", "departed", "invalid_request", "internal")
    before = [counted(code) for code in codes]
    async with grpc_stub(fake=FakeScorer()) as (stub, runtime):
        finished = stub.ScoreStream()
        await say(finished, "user", "hi")
        await finished.done_writing()
        assert await finished.read() is grpc.aio.EOF
        left = stub.ScoreStream()
        await say(left, "user", "hi")
        wrong = stub.ScoreStream()
        await wrong.write(turnscore_pb2.ConversationMessage())
        await refusal(wrong.read())
        left.cancel()  # which the service has begun by now, as it has answered a later one
        runtime.conversations.require_room = lambda: 1 / 0
        assert error_of(await refusal(stub.ScoreStream().read())).error.code == "internal"
        await until(lambda: [counted(code) - old for code, old in zip(codes, before, strict=True)] == [1] * 4)
