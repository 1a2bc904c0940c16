"""Live conversations over the WebSocket: the messages as JSON, refusals, close codes, and what a cut leaves."""

import asyncio
import json

import pytest
from support.conditions import until
from support.fakes import FakeScorer
from support.transports import listening_service as talk
from turnscore_service.settings.api import HttpSettings
from turnscore_service.settings.service import ConversationSettings, Settings
from turnscore_wire import ConversationReply, ErrorReply
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus


def path(address):
    return f"ws://{address}/v1/conversations"


async def say(socket, speaker, text):
    return await tell(socket, json.dumps({"turn": {"speaker": speaker, "text": text}}))


async def tell(socket, message):
    await socket.send(message)
    return await hear(socket)


async def hear(socket):
    return ConversationReply.model_validate_json(await asyncio.wait_for(socket.recv(), 30))


async def closing(socket):
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(socket.recv(), 30)
    return closed.value.rcvd.code, closed.value.rcvd.reason


WRONG_MESSAGES = [
    ("{", "body"),
    (b"\xff", "body"),
    ('{"turn": {"speaker": "user", "text": "\\ud800"}}', "turn.text"),
    ('{"turn": {"speaker": "user", "text": "hi"}, "open": {}}', "body"),
]


@pytest.mark.parametrize(("message", "field"), WRONG_MESSAGES)
async def test_a_wrong_message_is_told_and_the_conversation_goes_on(message, field):
    async with talk() as (address, _), connect(path(address)) as socket:
        await say(socket, "user", "hi")
        reply = await tell(socket, message)
        assert (reply.error.code, reply.error.field) == ("invalid_request", field)
        assert (await say(socket, "user", "hi")).ack.index == 1


ENDS = [
    (Settings(), ['{"open": {"scorers": ["mood"]}}'], "invalid_request", 4400),
    (Settings(), ["{"], "invalid_request", 4400),
    (Settings(conversations=ConversationSettings(max_bytes=10)), ['{"open": {}}'], "too_large", 4413),
    (Settings(conversations=ConversationSettings(idle_seconds=0.05)), [], "deadline_exceeded", 4504),
]


@pytest.mark.parametrize(("settings", "messages", "code", "close_code"), ENDS)
async def test_a_conversation_that_the_service_ends_says_why(settings, messages, code, close_code):
    async with talk(settings) as (address, _), connect(path(address)) as socket:
        for message in messages:
            await socket.send(message)
        assert (await hear(socket)).error.code == code
        assert await closing(socket) == (close_code, code)


async def test_a_draining_service_tells_its_conversations_and_ends_them_after_the_answers_due():
    scorer = FakeScorer()
    async with talk(Settings(drain_seconds=3), fake=scorer) as (address, runtime), connect(path(address)) as socket:
        await say(socket, "user", "hi")
        runtime.begin_drain()
        assert (await hear(socket)).draining.ends_in_ms == 3000
        scorer.gate.clear()
        await socket.send(json.dumps({"turn": {"speaker": "system", "text": "a"}}))
        await until(scorer.started.is_set)
        ending = asyncio.create_task(runtime.end_conversations())
        with pytest.raises(InvalidStatus) as refused:
            await connect(path(address))
        scorer.gate.set()
        assert (await hear(socket)).scored.scores
        assert (await hear(socket)).error.code == "not_ready"
        assert await closing(socket) == (4503, "not_ready")
        await ending
    assert refused.value.response.status_code == 503


async def test_a_handshake_without_room_is_refused_in_the_one_shape():
    settings = Settings(conversations=ConversationSettings(max_open=1))
    async with talk(settings) as (address, _), connect(path(address)) as socket:
        await say(socket, "user", "hi")
        with pytest.raises(InvalidStatus) as refused:
            await connect(path(address))
        response = refused.value.response
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        error = ErrorReply.model_validate_json(response.body)
        assert error.error.code == "overloaded"
        assert error.request_id == response.headers["x-request-id"]


async def test_only_its_own_pages_and_those_of_an_allowed_origin_may_open_a_conversation():
    settings = Settings(http=HttpSettings(allowed_origins=("https://chat.example",)))
    async with talk(settings) as (address, _):
        for origin in ("https://chat.example", f"http://{address}", None):
            async with connect(path(address), origin=origin) as socket:
                assert (await say(socket, "user", "hi")).ack
        for origin in ("https://evil.example", "https://chat.example.evil.example", "http://chat.example", "null"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(path(address), origin=origin)
            assert refused.value.response.status_code == 400
            assert ErrorReply.model_validate_json(refused.value.response.body).error.field == "origin"


async def test_a_websocket_elsewhere_is_refused_in_the_one_shape():
    async with talk() as (address, _):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}/v1/score")
    assert refused.value.response.status_code == 404
    assert ErrorReply.model_validate_json(refused.value.response.body).error.code == "not_found"
