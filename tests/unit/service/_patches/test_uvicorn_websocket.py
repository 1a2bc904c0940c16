"""Hostile frames: over real sockets, each bounded before it is decoded."""

import asyncio
import json
import os
import struct
import zlib
from contextlib import asynccontextmanager

import pytest
from support.transports import listening_service
from turnscore_service.api.websocket import endpoint
from turnscore_service.settings.service import ConversationSettings, Settings
from turnscore_wire import ConversationReply, ErrorReply
from websockets.server import ServerProtocol

SMALL = Settings(conversations=ConversationSettings(max_bytes=100_000))
HANDSHAKE = (
    b"GET /v1/conversations HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
DEFLATED = HANDSHAKE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
TEXT, FRAGMENT, CONTINUATION, LAST, PING, COMPRESSED = 0x81, 0x01, 0x00, 0x80, 0x89, 0xC1


def frame(head, payload=b"", *, announced=None):
    """A frame masked with zeros, which leaves the payload as it is."""
    length = len(payload) if announced is None else announced
    if length < 126:
        size = struct.pack("!B", 0x80 | length)
    elif length < 65_536:
        size = struct.pack("!BH", 0x80 | 126, length)
    else:
        size = struct.pack("!BQ", 0x80 | 127, length)
    return bytes([head]) + size + bytes(4) + payload


@asynccontextmanager
async def transport(settings=None, handshake=HANDSHAKE):
    """A WebSocket's two ends behind the real server, the handshake being over."""
    async with listening_service(settings) as (address, _):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(handshake + b"\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 101"), head
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def send(writer, data):
    """Sends it all, or what the server still takes."""
    try:
        writer.write(data)
        await writer.drain()
    except ConnectionError:
        pass


async def frames(reader):
    """The frames that the server sends until it closes, by first byte and payload."""
    rest = await asyncio.wait_for(reader.read(), 30)
    found = []
    while rest:
        length, start = rest[1], 2
        if length == 126:
            length, start = struct.unpack("!H", rest[2:4])[0], 4
        found.append((rest[0], rest[start : start + length]))
        rest = rest[start + length :]
    return found


async def close_code(reader):
    head, payload = (await frames(reader))[-1]
    assert head == 0x88
    return struct.unpack("!H", payload[:2])[0]


@pytest.mark.parametrize(
    "attack",
    [
        frame(TEXT, b" " * 100_001),
        frame(TEXT, announced=2**62),
        frame(FRAGMENT, b" " * 60_000) + frame(CONTINUATION, b" " * 40_001),
        frame(FRAGMENT, b" " * 60_000) + frame(LAST, announced=40_001),
    ],
    ids=["one frame", "announced", "fragments", "announced fragment"],
)
async def test_a_message_beyond_the_bound_is_refused_before_it_is_decoded(monkeypatch, attack):
    monkeypatch.setattr(endpoint, "decode", lambda *_: pytest.fail("it was decoded"))
    async with transport(SMALL) as (reader, writer):
        await send(writer, attack)
        (_, last), (head, closing) = await frames(reader)
    assert ConversationReply.model_validate_json(last).error.code == "too_large"
    assert (head, closing) == (0x88, struct.pack("!H", 4413) + b"too_large")


async def test_the_last_words_come_before_the_end_of_the_stream_with_which_some_clients_drop_them():
    async with transport(SMALL) as (reader, writer):
        await send(writer, frame(TEXT, announced=2**62))
        await reader.readuntil(struct.pack("!H", 4413) + b"too_large")
        assert not reader.at_eof()
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_the_largest_message_is_read():
    message = json.dumps({"turn": {"speaker": "user", "text": "hi"}}).encode()
    async with transport(SMALL) as (reader, writer):
        await send(writer, frame(TEXT, message + b" " * (100_000 - len(message))))
        _, length = await asyncio.wait_for(reader.readexactly(2), 30)
        reply = await asyncio.wait_for(reader.readexactly(length), 30)
    assert ConversationReply.model_validate_json(reply).ack.index == 0


async def test_a_deflated_message_is_measured_as_it_is_inflated(monkeypatch):
    monkeypatch.setattr(endpoint, "decode", lambda *_: pytest.fail("it was decoded"))
    deflate = zlib.compressobj(wbits=-12)
    payload = deflate.compress(b" " * 15_000_000) + deflate.flush(zlib.Z_SYNC_FLUSH)
    assert len(payload) < 70_000
    async with transport(SMALL, DEFLATED) as (reader, writer):
        await send(writer, frame(COMPRESSED, payload[:-4]))
        assert await close_code(reader) == 4413


@pytest.mark.parametrize("size", [0, 2])
async def test_a_message_in_countless_fragments_ends_the_connection(size):
    async with transport() as (reader, writer):
        await send(writer, frame(FRAGMENT, b"ab") + frame(CONTINUATION, b"a" * size) * 2_000)
        assert await close_code(reader) == 1002


@pytest.mark.parametrize("flood", [frame(PING), frame(0x8A)], ids=["ping", "pong"])
async def test_others_have_their_turn_while_tiny_frames_are_parsed(monkeypatch, flood):
    pieces = []
    receive = ServerProtocol.receive_data
    monkeypatch.setattr(
        ServerProtocol, "receive_data", lambda self, data: (pieces.append(len(data)), receive(self, data))
    )
    async with transport() as (_, writer):
        await send(writer, frame(FRAGMENT, b"a") + flood * 20_000)
        async with asyncio.timeout(20):
            while sum(pieces) < 50_000:
                await asyncio.sleep(0)
    assert max(pieces) <= 4096


async def test_pings_whose_answers_are_not_read_stop_the_reading():
    flood = frame(PING, os.urandom(125)) * 1000

    async def flow():
        """How much the server takes until it takes nothing for a second."""
        sent = 0
        while sent < 200_000_000:
            try:
                async with asyncio.timeout(1):
                    writer.write(flood)
                    await writer.drain()
            except TimeoutError:
                break
            sent += len(flood)
        return sent

    async with transport() as (_, writer):
        assert await flow() < 100_000_000  # the kernel's own buffers take some MB


@pytest.mark.parametrize(
    ("handshake", "status"),
    [
        (HANDSHAKE.replace(b"AAAAAAAAAAAAAAAAAAAAAA==", b"short"), 400),
        (HANDSHAKE.replace(b"Version: 13", b"Version: 7"), 400),
        (HANDSHAKE.replace(b"GET", b"POST"), 400),
        (HANDSHAKE + b"x-long: " + b"a" * 9_000 + b"\r\n", 400),
    ],
    ids=["key", "version", "method", "long line"],
)
async def test_a_handshake_that_is_none_is_refused_in_the_one_shape(handshake, status):
    async with listening_service() as (address, _):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(handshake + b"\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert ErrorReply.model_validate_json(body).error.code == "invalid_request"
