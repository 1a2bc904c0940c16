"""A line to a server of this machine that a test can cut in the middle, without a goodbye, or lay to another server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def cuttable(address: str) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """Another address of the server at `host:port`, and what resets every connection through it, and takes no more."""
    async with movable(address) as (line, move):
        yield line, lambda: move(None)


@asynccontextmanager
async def movable(address: str) -> AsyncIterator[tuple[str, Callable[..., Awaitable[None]]]]:
    """Another address of the server, and what sends new connections elsewhere, or nowhere.

    It resets those that are open, unless it is `leaving` them.
    """
    target = address
    open_ends: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
        except ConnectionError:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        open_ends.extend((writer, far_writer))
        tasks.append(asyncio.create_task(carry(reader, far_writer)))
        tasks.append(asyncio.create_task(carry(far_reader, writer)))

    async def move(to: str | None, leaving: bool = False) -> None:
        nonlocal target
        if to is None:
            server.close()
        else:
            target = to
        if leaving:
            return
        for end in open_ends:
            end.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    bound = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{bound}", move
    finally:
        await move(None)
