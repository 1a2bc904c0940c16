"""The BentoML service: life cycle, readiness and workers. Hands every request to the doors; no logic."""

import asyncio
import logging
import signal
from types import FrameType

import bentoml
from starlette.types import ASGIApp, Receive, Scope, Send

from turnscore_service.http_door import create_http_door
from turnscore_service.log_setup import set_up_logging
from turnscore_service.settings import read_settings
from turnscore_service.wiring import Runtime

_SETTINGS = read_settings()
_RUNTIME = Runtime(_SETTINGS)
_LOGGER = logging.getLogger("turnscore.bento")


class FrontDoor:
    """Sends every request straight to the HTTP door, so that all paths, /livez too, have one error shape."""

    def __init__(self, app: ASGIApp, door: ASGIApp) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """BentoML keeps the life cycle; everything else is the door's."""
        await (self._app if scope["type"] == "lifespan" else self._door)(scope, receive, send)


@bentoml.service(
    name="turnscore",
    workers=_SETTINGS.workers,
    # Deadlines are ours; BentoML's timeout only catches what should never happen.
    traffic={"timeout": 3600},
    # Measured by others as most of BentoML's cost, or with unbounded label values: ours stand in for them.
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
    tracing={"excluded_urls": ".*"},
)
class TurnScore:
    """Scores dialogue turns."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Begins to load the models and takes over SIGTERM."""
        set_up_logging(_SETTINGS.log_level)
        _RUNTIME.start(worker=(bentoml.server_context.worker_index or 1) - 1)
        _drain_before_stopping()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Lets work in flight finish."""
        await _RUNTIME.stop()


TurnScore.add_asgi_middleware(FrontDoor, door=create_http_door(_RUNTIME))  # type: ignore[attr-defined]


def _drain_before_stopping() -> None:
    """On SIGTERM readiness goes false at once and conversations are told; the server's own handler follows later."""
    loop = asyncio.get_running_loop()
    server_handler = signal.getsignal(signal.SIGTERM)
    draining: list[asyncio.Task[None]] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        if callable(server_handler):
            server_handler(number, frame)

    async def drain(number: int, frame: FrameType | None) -> None:
        _RUNTIME.begin_drain()
        await asyncio.sleep(_SETTINGS.drain_seconds)
        last = loop.time() + _SETTINGS.shutdown_seconds
        # The server cuts every WebSocket off; by then no answer may be due on one.
        await _RUNTIME.end_conversations()
        hand_on(number, frame)
        await asyncio.sleep(last - loop.time())
        # The server takes SIGINT after SIGTERM as the order not to wait for open connections any longer.
        hand_on(signal.SIGINT, frame)

    def begin(number: int, frame: FrameType | None) -> None:
        if not draining:
            loop.call_soon_threadsafe(lambda: draining.append(loop.create_task(drain(number, frame))))

    signal.signal(signal.SIGTERM, begin)
