"""What only conversations over a WebSocket meet: refused handshakes, redirects, text that is not turnscore's."""

import asyncio
import sys

import pytest
from support.transports import listening
from turnscore_client import ConnectionFailedError, TurnScoreClient, UnexpectedReplyError
from turnscore_client._sync import run_now
from turnscore_client._websocket import WebSocketStream


@pytest.fixture(params=["http-sync", "http-async"])
def kind(request):
    return request.param


async def test_a_service_without_conversations_is_told(live):
    async def app(scope, receive, send):
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})

    async with listening(app) as address:
        with pytest.raises(UnexpectedReplyError) as refused:
            async with live(address):
                pytest.fail("it opened")
    assert refused.value.status == 403


async def test_a_redirect_is_not_followed_with_the_key(live):
    asked = []

    async def app(scope, receive, send):
        asked.append(dict(scope["headers"])[b"authorization"])
        await receive()
        start = {"type": "websocket.http.response.start", "status": 302, "headers": [(b"location", b"/elsewhere")]}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": b""})

    async with listening(app) as address:
        with pytest.raises(UnexpectedReplyError):
            async with live(address):
                pytest.fail("it opened")
    assert asked == [b"Bearer s3cret"]


async def test_messages_that_are_not_turnscores_are_told(live):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.send", "text": "hello"})
        await receive()

    async with listening(app) as address:
        with pytest.raises(UnexpectedReplyError) as refused:
            async with live(address):
                pytest.fail("it opened")
    assert refused.value.body_start == "hello"


async def _receive():
    await asyncio.sleep(60)


def test_a_conversation_whose_thread_has_ended_says_so_and_closes():
    stream = WebSocketStream()  # as a forked process has it
    stream._loop.call_soon_threadsafe(stream._loop.stop)
    stream._thread.join()
    with pytest.raises(ConnectionFailedError, match="stays in its process"):
        stream._run(_receive())
    run_now(stream.close())
    stream._loop.close()


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.delitem(sys.modules, "turnscore_client._websocket", raising=False)
    with (
        TurnScoreClient("http://127.0.0.1:9") as client,
        pytest.raises(ImportError, match=r"pip install '\./clients\[websocket\]'"),
        client.conversation(),
    ):
        pytest.fail("it opened")
