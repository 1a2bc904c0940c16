"""An ASGI app behind the real server, in this process and event loop, on a free port of 127.0.0.1."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp
from turnscore_service._patches.uvicorn_websocket import bounded_protocols
from turnscore_service.api.http.exchange import serving_with
from turnscore_service.settings.service import Settings


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: ASGIApp, settings: Settings | None = None, *, port: int = 0) -> AsyncIterator[str]:
    """The app's address as `127.0.0.1:port`, configured as BentoML configures its server, with our protocols."""
    http, websocket = bounded_protocols(serving_with(settings or Settings()))
    server = QuietServer(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=port,
            log_config=None,
            lifespan="off",
            proxy_headers=False,
            http=http,
            ws=websocket,
        )
    )
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0)
    [listener] = server.servers
    host, taken = listener.sockets[0].getsockname()
    try:
        yield f"{host}:{taken}"
    finally:
        server.should_exit = True
        await serving
