"""One service on fakes over every transport: in this event loop, or in a thread for programs that the test runs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from turnscore_service.api.http.app import create_app
from turnscore_service.settings.service import Settings

from support.fakes import FakeScorer
from support.grpc_serving import grpc_server, settings_with
from support.listening import listening


@dataclass
class Transports:
    """Connections to the transports, and the addresses behind them."""

    http: httpx.AsyncClient
    grpc: grpc.aio.Channel
    websocket: str
    target: str


@asynccontextmanager
async def serve_transports(
    auth: dict[str, Any], scorer: FakeScorer | None = None, **groups: Any
) -> AsyncIterator[Transports]:
    """The transports of a service with these settings; `scorer` is the one it has."""
    async with (
        grpc_server(settings_with(auth=auth, **groups), fake=scorer or FakeScorer()) as (server, runtime),
        listening(create_app(runtime)) as address,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=60, verify=False) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Transports(client, channel, f"ws://{address}/v1/conversations", f"127.0.0.1:{server.port}")


@contextmanager
def served_transports(settings: Settings | None = None, **scorers: Any) -> Iterator[tuple[int, int]]:
    """The HTTP port and the gRPC port. `settings` come from `settings_with`."""
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()
    opened: list[tuple[int, int]] = []

    async def run() -> None:
        async with (
            grpc_server(settings, **scorers) as (server, runtime),
            listening(create_app(runtime)) as address,
        ):
            assert server.port is not None
            opened.append((int(address.rpartition(":")[2]), server.port))
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert started.wait(60)
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
