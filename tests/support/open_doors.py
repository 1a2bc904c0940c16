"""Every door of one service on fakes, in this event loop, with a connection to each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from turnscore_service.api.http.app import create_http_door

from support.fakes import FakeScorer
from support.grpc_serving import grpc_server, settings_with
from support.listening import listening


@dataclass
class Doors:
    """Connections to the doors, and the addresses behind them."""

    http: httpx.AsyncClient
    grpc: grpc.aio.Channel
    websocket: str
    target: str


@asynccontextmanager
async def serve_doors(auth: dict[str, Any], scorer: FakeScorer | None = None, **groups: Any) -> AsyncIterator[Doors]:
    """The doors of a service with these settings; `scorer` is the one it has."""
    async with (
        grpc_server(settings_with(auth=auth, **groups), fake=scorer or FakeScorer()) as (server, runtime),
        listening(create_http_door(runtime)) as address,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=60, verify=False) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Doors(client, channel, f"ws://{address}/v1/conversations", f"127.0.0.1:{server.port}")
