"""Requests over real connections: bodies in one piece and in several, several ahead, and callers that leave."""

import asyncio
import json

from conftest import ServeFakes
from prometheus_client import REGISTRY
from support.fakes import FakeScorer
from support.transports import listening
from turnscore_service.api.http.app import create_app


def request(response: str, *, is_last: bool = False) -> bytes:
    body = json.dumps({"response": response}).encode()
    head = f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n" * is_last + b"\r\n" + body


def departed() -> float:
    labels = {"transport": "http", "call": "score", "code": "departed"}
    return REGISTRY.get_sample_value("turnscore_requests_total", labels) or 0.0


async def test_requests_in_pieces_and_sent_ahead_are_answered_in_order(serve: ServeFakes):
    async with (
        serve(fake=FakeScorer()) as (_, runtime),
        listening(create_app(runtime)) as address,
    ):
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
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


async def test_a_caller_that_hangs_up_is_counted_and_its_turn_is_not_computed(serve: ServeFakes):
    scorer = FakeScorer()
    scorer.gate.clear()
    before = departed()
    async with serve(fake=scorer) as (client, runtime), listening(create_app(runtime)) as address:
        busy = asyncio.create_task(client.post("/v1/score", json={"response": "a b c"}))
        await asyncio.to_thread(scorer.started.wait, 30)
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(request("a b c d e"))
        async with asyncio.timeout(30):
            while REGISTRY.get_sample_value("turnscore_queued_items", {"scorer": "fake"}) != 1:
                await asyncio.sleep(0.001)
            writer.close()
            while departed() != before + 1:
                await asyncio.sleep(0.001)
        scorer.gate.set()
        assert (await busy).status_code == 200
    assert scorer.batches == [[3]]
