"""The study's server: connections that send nothing, or half a request, end by themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from support.transports import QuietServer
from turnscore_assessment.study.server import TimedProtocol

REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"


class HastyProtocol(TimedProtocol):
    request_seconds = 0.2


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(protocol: type[TimedProtocol]) -> AsyncIterator[int]:
    config = uvicorn.Config(echo, port=0, http=protocol, lifespan="off", log_config=None)
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize("sent", [b"", REQUEST[:20], REQUEST, REQUEST + b"abc", REQUEST + b"abcdePOST"])
async def test_a_connection_whose_request_does_not_arrive_is_ended(sent: bytes) -> None:
    async with served(HastyProtocol) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(10):
            with suppress(ConnectionError):  # which an aborted connection may end in
                while await reader.read(1000):
                    pass
        writer.close()


async def test_a_connection_that_sends_whole_requests_stays_open_between_them() -> None:
    async with served(HastyProtocol) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(REQUEST + b"abcde")
            async with asyncio.timeout(10):
                assert (await reader.readuntil(b"abcde")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(2 * HastyProtocol.request_seconds)
        writer.close()
