"""Server protocols: gives uvicorn, which BentoML starts without asking us, our protocols in place of its own."""

import asyncio

from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS

from turnscore_service.api.http.exchange import Door
from turnscore_service.api.http.protocol import BoundedHttpProtocol
from turnscore_service.api.websocket.websocket_protocol import BoundedWebSocketProtocol
from turnscore_service.settings.service import Settings


def bounded_protocols(
    settings: Settings, door: Door | None = None
) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    """The protocols of HTTP and of WebSockets, bound by the settings; both ask the door, or else the server's app."""
    http = type("HttpProtocol", (BoundedHttpProtocol,), {"bounds": settings.http, "door": door})
    bounds = {"most_bytes": settings.conversations.max_bytes, "door": door}
    return http, type("WebSocketProtocol", (BoundedWebSocketProtocol,), bounds)


def install_protocols(settings: Settings, door: Door) -> None:
    """Every server that this process configures from here on has them, unless it names others.

    Requests then go from the connection to the door. What BentoML puts around its app took 0.1 ms of CPU for each, and
    its timeout kept a timer of every request until `traffic.timeout` was over. Its app keeps the life cycle.
    """
    HTTP_PROTOCOLS["auto"], WS_PROTOCOLS["auto"] = bounded_protocols(settings, door)  # type: ignore[assignment]
