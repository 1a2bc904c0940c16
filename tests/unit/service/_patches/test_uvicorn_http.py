"""Connections over real sockets: bodies in pieces, several requests ahead, callers that leave, hostile heads."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import pytest
from support.conditions import until
from support.fakes import FakeScorer, sample
from support.transports import listening, listening_service, ready_runtime
from turnscore_service.api.http.app import create_app
from turnscore_service.settings.api import HttpSettings
from turnscore_service.settings.service import Settings
from turnscore_wire import ErrorReply

QUICK = Settings(http=HttpSettings(header_timeout_seconds=0.3))
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def transport(settings=None, **scorers):
    """The transport's host and port, behind the real server."""
    async with listening_service(settings, **scorers) as (address, _):
        host, port = address.split(":")
        yield host, int(port)


async def all_of(reader):
    """Everything until the server closes, which it must."""
    return await asyncio.wait_for(reader.read(), 30)


async def ask(at, *pieces):
    """What the server answers to the pieces before it closes the connection."""
    reader, writer = await asyncio.open_connection(*at)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # it has answered, or it has not: what it sent says so
    try:
        return await all_of(reader)
    finally:
        writer.close()


def refusal(answer):
    """Status, code and field of the last answer, in the one error shape."""
    head, _, body = answer[answer.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    reply = ErrorReply.model_validate_json(body)
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"] == reply.request_id
    return int(lines[0].split()[1]), str(reply.error.code), reply.error.field


async def test_a_connection_without_a_request_is_closed():
    async with transport(QUICK) as at:
        assert await ask(at) == b""


async def test_headers_that_do_not_end_in_time_are_refused():
    async def dribble(writer):
        try:
            while True:
                writer.write(b"x-slow: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass

    async with transport(QUICK) as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"GET /livez HTTP/1.1\r\n")
        dribbling = asyncio.create_task(dribble(writer))
        assert refusal(await all_of(reader)) == (504, "deadline_exceeded", "headers")
        writer.close()
        await dribbling


@pytest.mark.parametrize("noise", [b"\r\n", b"GET /livez HTTP/1.1\r\n"], ids=["empty lines", "half a head"])
async def test_a_kept_connection_is_bounded_too(noise):
    async with (
        ready_runtime(fake=FakeScorer()) as runtime,
        listening(create_app(runtime), QUICK, timeout_keep_alive=1) as address,
    ):
        host, port = address.split(":")
        answer = await ask((host, int(port)), LIVEZ, noise)
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_slow_answer_is_no_slow_request():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with transport(QUICK, fake=scorer) as at:
        body = json.dumps({"response": "a"}).encode()
        head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        reader, writer = await asyncio.open_connection(*at)
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(3 * QUICK.http.header_timeout_seconds)  # the time itself is what must not count
        scorer.gate.set()
        assert (await all_of(reader)).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"a" * 1000) for n in range(100)),
        b"GET /livez HTTP/1.1\r\nx-large: " + b"a" * 400_000,
        b"GET /livez?" + b"a" * 400_000,
        b"GET /livez HTTP/1.1\r\n" + b"a:\r\n" * 129 + b"\r\n",
    ],
    ids=["many", "one long value", "a long target", "129 headers"],
)
async def test_a_head_that_is_too_large_is_refused(head):
    async with transport() as at:
        assert refusal(await ask(at, head)) == (431, "too_large", "headers")


async def test_the_largest_legal_head_is_taken():
    most = HttpSettings().max_head_bytes
    headers = b"".join(b"x-%04d:%s\r\n" % (n, b"a" * 500) for n in range(126))
    rest = most - sum(6 + 500 for _ in range(126)) - len("/livez" + "connection" + "close" + "x")
    head = b"GET /livez HTTP/1.1\r\nConnection: close\r\n" + headers + b"x:" + b"b" * rest + b"\r\n\r\n"
    async with transport() as at:
        assert (await ask(at, head)).startswith(b"HTTP/1.1 200")
        larger = head.replace(b"x:", b"x:b", 1)
        assert refusal(await ask(at, larger)) == (431, "too_large", "headers")


@pytest.mark.parametrize(
    "endless", [b"0\r\nx-trailer: ", b"1;", b"0\r\n" + b"a: b\r\n" * 40_000], ids=["trailer", "extension", "trailers"]
)
async def test_what_surrounds_a_chunked_body_is_bounded(endless):
    head = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    async with transport() as at:
        assert refusal(await ask(at, head, endless, *[b"a" * 100_000] * 8)) == (431, "too_large", "headers")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n", b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW /v1/score HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nbad header\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["words", "non-ascii", "method", "version", "header", "http2", "target", "tls"],
)  # fmt: skip
async def test_what_is_no_request_is_refused_in_the_one_shape(request_bytes):
    async with transport() as at:
        status, code, _ = refusal(await ask(at, request_bytes))
    assert (status, code) == (400, "invalid_request")


async def test_requests_sent_ahead_are_answered_up_to_a_bound():
    last = LIVEZ.replace(b"Host", b"Connection: close\r\nHost")
    async with transport() as at:
        assert (await ask(at, LIVEZ * 99 + last)).count(b"HTTP/1.1 200") == 100
        assert (await ask(at, LIVEZ * 20_000)).count(b"HTTP/1.1 200") < 200


def request(response, *, is_last=False):
    body = json.dumps({"response": response}).encode()
    head = f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n" * is_last + b"\r\n" + body


def departed():
    return sample("requests_total", transport="http", call="score", code="departed")


async def test_requests_in_pieces_and_sent_ahead_are_answered_in_order():
    async with transport() as at:
        reader, writer = await asyncio.open_connection(*at)
        sent = request("a") + request("a b") + request("a b c", is_last=True)
        for piece in (sent[:150], sent[150:-5], sent[-5:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)  # so that they arrive apart
        answers = (await asyncio.wait_for(reader.read(), 30)).split(b"HTTP/1.1 200 OK")[1:]
        writer.close()
    assert [json.loads(each.partition(b"\r\n\r\n")[2])["scores"]["fake"]["value"] for each in answers] == [
        0.01,
        0.02,
        0.03,
    ]


async def test_a_caller_that_hangs_up_is_counted_and_its_turn_is_not_computed(serve):
    scorer = FakeScorer()
    scorer.gate.clear()
    before = departed()
    async with serve(fake=scorer) as (client, runtime), listening(create_app(runtime)) as address:
        busy = asyncio.create_task(client.post("/v1/score", json={"response": "a b c"}))
        await asyncio.to_thread(scorer.started.wait, 30)
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(request("a b c d e"))
        await until(lambda: sample("queued_items", scorer="fake") == 1)
        writer.close()
        await until(lambda: departed() == before + 1)
        scorer.gate.set()
        assert (await busy).status_code == 200
    assert scorer.batches == [[3]]


async def test_a_caller_that_leaves_in_the_middle_of_its_body_is_no_error(caplog):
    before = departed()
    async with transport() as at:
        _, writer = await asyncio.open_connection(*at)
        writer.write(request("a b c")[:-5])
        await writer.drain()
        await asyncio.sleep(0.02)  # so that the head is read before the end
        writer.close()
        await until(lambda: departed() == before + 1)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
