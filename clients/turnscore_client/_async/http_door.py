"""The HTTP door for asyncio: calls over httpx, conversations over a WebSocket."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from turnscore_client._async.conversation import AsyncLine
from turnscore_client._calls import Call
from turnscore_client._http.replies import read_reply
from turnscore_client._http.sending import AsyncHttp, AsyncTransport, Outgoing
from turnscore_client._retry import Attempts
from turnscore_client._settings import ClientSettings
from turnscore_client._tls import Tls

R = TypeVar("R", bound=BaseModel)


class AsyncHttpDoor:
    """From the running event loop."""

    def __init__(self, settings: ClientSettings, tls: Tls | None, transport: AsyncTransport | None) -> None:
        self._settings = settings
        self._http = AsyncHttp(settings.url, tls, transport)
        self._open_line = getattr(transport, "open_async_line", None)  # a mock's own

    async def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        return read_reply(await self._http.send(_outgoing(self._settings, call, attempts)), call.endpoint.reply_type)

    async def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> AsyncLine:
        """A WebSocket for one conversation."""
        headers = self._settings.headers(request_id, metadata)
        if self._open_line is not None:
            line: AsyncLine = self._open_line(headers)
            return line
        from turnscore_client._http.websocket import AsyncWebSocketLine

        return await AsyncWebSocketLine.open(self._settings.url, self._http.line_context, headers, attempts)

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.close()


def _outgoing(settings: ClientSettings, call: Call[R], attempts: Attempts) -> Outgoing:
    """The request of one attempt, which carries the time that is left."""
    return Outgoing(
        method=call.endpoint.method,
        path=call.endpoint.path,
        headers=settings.headers(call.request_id, call.metadata),
        body=call.body(attempts.deadline_ms_left),
        seconds_left=attempts.seconds_left,
    )
