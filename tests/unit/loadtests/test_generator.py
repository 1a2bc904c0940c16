"""The raw generator: every call is settled once, times count from when a call was due, the rate is kept."""

import asyncio
import itertools
import json

import pytest
from support.plain_server import REFUSED, SCORED, Reply, plain_server
from turnscore_load import generator as generator_module
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.generator import Generator
from turnscore_load.raw_http import open_connection, post_bytes

ITEM = {"response": "ok"}


def requests(generator: Generator):
    return itertools.repeat(generator.request(ITEM))


def outcomes(stage: Stage) -> set[tuple[str, str]]:
    return {(call.answer.outcome, call.answer.why) for call in stage.calls}


async def scored(path: str, body: bytes) -> Reply:
    assert (path, json.loads(body)) == ("/v1/score", ITEM)
    return SCORED


async def test_closed_loop_clients_call_as_long_as_they_are_told_to():
    async with plain_server(scored) as port:
        generator = Generator(port, 1000)
        stage = await generator.run_closed(3, 0.5, requests(generator))
        generator.close()
    assert outcomes(stage) == {("answered", "")}
    assert len(stage.calls) > 3
    assert all(call.due_at <= stage.began_at + 0.5 for call in stage.calls)


async def test_never_more_calls_at_once_than_clients():
    at_once, most = 0, 0

    async def slow(path: str, body: bytes) -> Reply:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return SCORED

    async with plain_server(slow) as port:
        generator = Generator(port, 1000)
        await generator.run_closed(4, 0.2, requests(generator))
        generator.close()
    assert most == 4


async def test_open_loop_sends_at_its_rate_though_nothing_is_answered():
    all_came = asyncio.Event()
    came = itertools.count(1)

    async def hold(path: str, body: bytes) -> Reply:
        if next(came) == 60:
            all_came.set()
        await all_came.wait()
        return SCORED

    async with plain_server(hold) as port:
        generator = Generator(port, 1000)
        stage = await generator.run_open([generator.request(ITEM)] * 60, per_second=300)
        generator.close()
    assert outcomes(stage) == {("answered", "")}
    assert stage.seconds == pytest.approx(0.2)
    due = sorted(call.due_at - stage.began_at for call in stage.calls)
    assert due == pytest.approx([number / 300 for number in range(60)])
    assert all(call.sent_at >= call.due_at for call in stage.calls)


async def test_time_waited_for_a_connection_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generator_module, "MAX_CONNECTIONS", 1)

    async def slow(path: str, body: bytes) -> Reply:
        await asyncio.sleep(0.05)
        return SCORED

    async with plain_server(slow) as port:
        generator = Generator(port, 1000)
        stage = await generator.run_open([generator.request(ITEM)] * 4, per_second=1000)
        generator.close()
    assert max(call.took_ms for call in stage.calls) >= 3.5 * 50
    assert max(call.late_ms for call in stage.calls) >= 2.5 * 50


BROKEN: list[tuple[Reply, str]] = [
    (None, "the connection was lost: closed"),
    ((200, {}, b"<html>"), "200 with a body that is no reply"),
    ((500, {}, b""), "status 500"),
    ((200, {"Content-Length": "many"}, b""), "the reply was not HTTP with a length"),
]


@pytest.mark.parametrize(("reply", "why"), BROKEN)
async def test_what_is_no_answer_is_told(reply: Reply, why: str):
    async def broken(path: str, body: bytes) -> Reply:
        return reply

    async with plain_server(broken) as port:
        generator = Generator(port, 1000)
        stage = await generator.run_open([generator.request(ITEM)] * 3, per_second=100)
        generator.close()
    assert outcomes(stage) == {("failed", why)}
    assert len(stage.calls) == 3


async def test_a_call_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generator_module, "_PATIENCE_SECONDS", 0.05)
    never = asyncio.Event()

    async def silent(path: str, body: bytes) -> Reply:
        await never.wait()
        return SCORED

    async with plain_server(silent) as port:
        generator = Generator(port, 10)
        stage = await generator.run_open([generator.request(ITEM)], per_second=100)
        never.set()
    assert outcomes(stage) == {("failed", "no answer")}


async def test_a_call_that_finds_no_connection_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generator_module, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(generator_module, "_PATIENCE_SECONDS", 0.05)

    async def silent(path: str, body: bytes) -> Reply:
        await asyncio.sleep(5)
        return SCORED

    async with plain_server(silent) as port:
        generator = Generator(port, 10)
        stage = await generator.run_open([generator.request(ITEM)] * 5, per_second=1000)
    whys = [call.answer.why for call in stage.calls]
    assert whys[0] == "no answer"
    assert "not sent: every connection was waiting for an answer" in whys


async def test_a_dead_service_is_told():
    async with plain_server(scored) as port:
        pass
    generator = Generator(port, 1000)
    stage = await generator.run_open([generator.request(ITEM)] * 2, per_second=100)
    assert outcomes(stage) == {("failed", "no connection: ConnectionRefusedError")}


async def test_connections_are_used_again_and_closed_ones_replaced():
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(3):  # three calls a connection
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
            writer.write(b"HTTP/1.1 429 ?\r\nRetry-After: 0\r\nContent-Length: 0\r\n")
            writer.write(b"Connection: close\r\n\r\n" if _ == 2 else b"\r\n")
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    generator = Generator(server.sockets[0].getsockname()[1], 1000)
    stage = None
    for _ in range(9):
        stage = await generator.run_open([generator.request(ITEM)], per_second=100)
        assert outcomes(stage) == {("refused", "")}
    generator.close()
    server.close()
    assert connections == 3


async def test_a_reply_in_pieces_is_one_reply():
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nRETRY-AFTER: 7\r\n\r\nhello":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await open_connection(port)
    replied = asyncio.get_running_loop().create_future()
    connection.send(post_bytes("/", port, b"{}"), replied.set_result)
    reply = await asyncio.wait_for(replied, 60)
    connection.close()
    server.close()
    assert (reply.status, reply.retry_after, reply.body) == (200, "7", b"hello")


async def test_a_refused_client_waits_as_advised():
    async def refuse(path: str, body: bytes) -> Reply:
        return REFUSED

    async with plain_server(refuse) as port:
        generator = Generator(port, 1000)
        stage = await generator.run_closed(1, 0.3, requests(generator))
        generator.close()
    assert [call.answer.outcome for call in stage.calls] == ["refused"]


def call(outcome: str, took_ms: float, done_at: float = 1.0) -> CallRecord:
    answer = type("A", (), {"outcome": outcome})()
    return CallRecord(due_at=done_at - took_ms / 1000, sent_at=done_at - took_ms / 1000, done_at=done_at, answer=answer)


def test_goodput_counts_complete_answers_in_time_within_the_stage():
    calls = [call("answered", 100), call("answered", 100), call("answered", 600), call("expired", 1),
             call("answered", 100, done_at=2.1), call("refused", 1)]  # fmt: skip
    assert Stage(calls, began_at=0.0, seconds=2.0).goodput(500) == 1.0


def test_percentiles_are_of_the_outcomes_asked_for():
    stage = Stage([*(call("answered", each) for each in range(1, 102)), call("expired", 9000)], 0.0, 1.0)
    assert stage.took_ms(50, "answered") == pytest.approx(51)
    assert stage.took_ms(99, "answered") == pytest.approx(100)
    assert stage.took_ms(99, "refused") == 0.0
