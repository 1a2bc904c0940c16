"""Both doors on a scorer without a model, served from a thread of the test process, for programs that the test runs."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnscore_service.api.http.app import create_http_door
from turnscore_service.settings.service import Settings

from support.grpc_serving import grpc_server
from support.listening import listening


@contextmanager
def served_doors(settings: Settings | None = None, **scorers: Any) -> Iterator[tuple[int, int]]:
    """The HTTP port and the gRPC port. `settings` come from `settings_with`."""
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()
    opened: list[tuple[int, int]] = []

    async def run() -> None:
        async with (
            grpc_server(settings, **scorers) as (server, runtime),
            listening(create_http_door(runtime)) as address,
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
