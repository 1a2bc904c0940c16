"""A server of our own making, to see what the load tests make of honest, rude and broken services."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

Reply = tuple[int, dict[str, str], bytes] | None
"""Status, headers and body; None closes the connection without a word."""
Behaviour = Callable[[str, bytes], Awaitable[Reply]]
"""What it does with a path and a body."""

SCORED: Reply = (
    200,
    {},
    json.dumps({"request_id": "a", "scores": {"fed": {}}, "errors": {}, "timing_ms": {}}).encode(),
)
REFUSED: Reply = (429, {"Retry-After": "1"}, b"{}")


@asynccontextmanager
async def plain_server(behave: Behaviour) -> AsyncIterator[int]:
    """Serves in this event loop; the port on 127.0.0.1."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].partition("\r")[0] or 0)
                reply = await behave(head.split()[1], await reader.readexactly(length))
                if reply is None:
                    break
                status, headers, body = reply
                told = {"Content-Length": str(len(body)), **headers}
                lines = [f"HTTP/1.1 {status} ?", *(f"{name}: {value}" for name, value in told.items()), "", ""]
                writer.write("\r\n".join(lines).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the caller left, or the test ends
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextmanager
def plain_server_in_a_thread(behave: Behaviour) -> Iterator[int]:
    """The same for tests that run a program against it."""
    started, port = threading.Event(), []
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def run() -> None:
        async with plain_server(behave) as bound:
            port.append(bound)
            started.set()
            await stopped.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert started.wait(60)
    try:
        yield port[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
