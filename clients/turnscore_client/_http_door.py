"""The HTTP doors: calls over httpx, conversations over a WebSocket."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from turnscore_client._async_conversation import AsyncLine
from turnscore_client._calls import Call
from turnscore_client._conversation import Line
from turnscore_client._http import AsyncHttp, AsyncTransport, Outgoing, SyncHttp, SyncTransport, context_of
from turnscore_client._replies import read_reply
from turnscore_client._retry import Attempts
from turnscore_client._settings import ClientSettings
from turnscore_client._shared_ssl_socket import share
from turnscore_client._tls import Tls

R = TypeVar("R", bound=BaseModel)


class SyncHttpDoor:
    """From the calling thread."""

    def __init__(self, settings: ClientSettings, tls: Tls | None, transport: SyncTransport | None) -> None:
        self._settings = settings
        self._context = share(context_of(settings.url, tls))
        self._http = SyncHttp(settings.url, context_of(settings.url, tls), transport)
        self._open_line = getattr(transport, "open_line", None)  # a mock's own

    def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        return read_reply(self._http.send(_outgoing(self._settings, call, attempts)), call.reply_type)

    def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Line:
        """A WebSocket for one conversation."""
        headers = self._settings.headers(request_id, metadata)
        if self._open_line is not None:
            line: Line = self._open_line(headers)
            return line
        from turnscore_client._websocket import WebSocketLine

        return WebSocketLine(self._settings.url, self._context, headers, attempts)

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()


class AsyncHttpDoor:
    """From the running event loop."""

    def __init__(self, settings: ClientSettings, tls: Tls | None, transport: AsyncTransport | None) -> None:
        self._settings = settings
        self._context = context_of(settings.url, tls)
        self._http = AsyncHttp(settings.url, self._context, transport)
        self._open_line = getattr(transport, "open_async_line", None)

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        return read_reply(await self._http.send(_outgoing(self._settings, call, attempts)), call.reply_type)

    async def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> AsyncLine:
        """A WebSocket for one conversation."""
        headers = self._settings.headers(request_id, metadata)
        if self._open_line is not None:
            line: AsyncLine = self._open_line(headers)
            return line
        from turnscore_client._websocket import AsyncWebSocketLine

        return await AsyncWebSocketLine.open(self._settings.url, self._context, headers, attempts)

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.close()


def _outgoing(settings: ClientSettings, call: Call[R], attempts: Attempts) -> Outgoing:
    """The request of one attempt, which carries the time that is left."""
    return Outgoing(
        call.method,
        call.path,
        settings.headers(call.request_id, call.metadata),
        call.body(attempts.deadline_ms_left),
        attempts.seconds_left,
    )
