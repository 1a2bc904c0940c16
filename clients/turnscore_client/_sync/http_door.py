# `make sync-client` made this of _async/http_door.py: change that file.
"""The HTTP door for threads: calls over httpx, conversations over a WebSocket."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from turnscore_client._calls import Call
from turnscore_client._http.replies import read_reply
from turnscore_client._http.sending import Http, Outgoing, Transport
from turnscore_client._retry import Attempts
from turnscore_client._settings import ClientSettings
from turnscore_client._sync.conversation import Line
from turnscore_client._tls import Tls

R = TypeVar("R", bound=BaseModel)


class HttpDoor:
    """From the calling thread."""

    def __init__(self, settings: ClientSettings, tls: Tls | None, transport: Transport | None) -> None:
        self._settings = settings
        self._http = Http(settings.url, tls, transport)
        self._open_line = getattr(transport, "open_line", None)  # a mock's own

    def send(self, call: Call[R], attempts: Attempts) -> R:
        """The reply to one attempt."""
        return read_reply(self._http.send(_outgoing(self._settings, call, attempts)), call.endpoint.reply_type)

    def open_line(self, metadata: Mapping[str, str], request_id: str | None, attempts: Attempts) -> Line:
        """A WebSocket for one conversation."""
        headers = self._settings.headers(request_id, metadata)
        if self._open_line is not None:
            line: Line = self._open_line(headers)
            return line
        from turnscore_client._http.websocket import WebSocketLine

        return WebSocketLine.open(self._settings.url, self._http.line_context, headers, attempts)

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()


def _outgoing(settings: ClientSettings, call: Call[R], attempts: Attempts) -> Outgoing:
    """The request of one attempt, which carries the time that is left."""
    return Outgoing(
        method=call.endpoint.method,
        path=call.endpoint.path,
        headers=settings.headers(call.request_id, call.metadata),
        body=call.body(attempts.deadline_ms_left),
        seconds_left=attempts.seconds_left,
    )
