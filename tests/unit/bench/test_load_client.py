import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from turnscore_bench.harness.load_client import drive

Answer = Callable[[str], tuple[int, str]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[int]:
    """A server on 127.0.0.1 that answers each body with a status and a body; its port. Status 0 hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                status, body = answer((await reader.readexactly(length)).decode())
                if not status:
                    break
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                await asyncio.sleep(0)  # head and body arrive apart
                writer.write(body.encode())
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_every_body_is_sent_once_and_replies_of_one_client_keep_their_order() -> None:
    async with answering(lambda body: (200, body.upper())) as port:
        answer = await drive(port, "/", [f"b{number}" for number in range(20)], 1, keeps_replies=True)
    assert answer["replies"] == [f"B{number}" for number in range(20)]
    assert answer["answered"] == len(answer["latencies_ms"]) == 20


async def test_a_refused_request_is_sent_again_until_it_is_answered() -> None:
    seen: list[str] = []
    refusal = json.dumps({"error": {"code": "overloaded", "retry_after_ms": 1}})

    def answer(body: str) -> tuple[int, str]:
        seen.append(body)
        return (429, refusal) if seen.count(body) < 3 else (200, "{}")

    async with answering(answer) as port:
        answer = await drive(port, "/", ["one", "two", "three"], 2, keeps_replies=False)
    assert (answer["answered"], answer["refused"], answer["failed_requests"]) == (3, 6, 0)
    assert sorted(seen) == sorted(["one", "two", "three"] * 3)


async def test_errors_are_counted_as_requests_and_as_items_and_the_first_is_told() -> None:
    replies = {"bad": (500, "broken"), "half": (200, '{"results": [{"errors":{}}, {"error": 1}, {"error":2}]}')}
    replies["half"] = (200, replies["half"][1].replace('"error": 1', '"error":1'))
    async with answering(lambda body: replies.get(body, (200, '{"errors":{}}'))) as port:
        answer = await drive(port, "/", ["good", "bad", "half"], 1, keeps_replies=False)
    assert (answer["answered"], answer["failed_requests"], answer["failed_items"]) == (2, 1, 2)
    assert answer["first_error"] == "broken"


async def test_a_server_that_hangs_up_ends_the_measurement() -> None:
    async with answering(lambda _: (0, "")) as port:
        with pytest.raises(ConnectionError, match="closed"):
            await drive(port, "/", ["one"], 1, keeps_replies=False)
