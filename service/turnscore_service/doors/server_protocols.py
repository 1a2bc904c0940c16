"""Server protocols: gives uvicorn, which BentoML starts without asking us, our protocols in place of its own."""

import asyncio

from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS

from turnscore_service.doors.http_protocol import BoundedHttpProtocol
from turnscore_service.doors.websocket_protocol import BoundedWebSocketProtocol
from turnscore_service.settings.service import Settings


def bounded_protocols(settings: Settings) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    """The protocols of HTTP and of WebSockets, bound by the settings."""
    http = type("HttpProtocol", (BoundedHttpProtocol,), {"bounds": settings.http})
    websocket = type("WebSocketProtocol", (BoundedWebSocketProtocol,), {"most_bytes": settings.conversations.max_bytes})
    return http, websocket


def install_protocols(settings: Settings) -> None:
    """Every server that this process configures from here on has them, unless it names others."""
    HTTP_PROTOCOLS["auto"], WS_PROTOCOLS["auto"] = bounded_protocols(settings)  # type: ignore[assignment]
