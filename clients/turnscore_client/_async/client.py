"""The client for asyncio over HTTP."""

from turnscore_client import _defaults
from turnscore_client._async.calls import AsyncCalls
from turnscore_client._async.http_door import AsyncHttpDoor
from turnscore_client._clock import Clock
from turnscore_client._http.sending import AsyncTransport
from turnscore_client._settings import ClientSettings
from turnscore_client._tls import Tls


class AsyncTurnScoreClient(AsyncCalls):
    """A client of one turnscore service, to be kept and shared within one event loop: it reuses its connections.

    `url` and `api_key` default to the environment's TURNSCORE_URL and TURNSCORE_API_KEY. `tls` is for an
    `https://` address whose authority is private or which asks for a certificate; without it the public authorities are
    trusted. `timeout_seconds` is for a whole call: connecting, waiting, every retry and the delays between. `transport`
    is one of httpx's, encrypted in its own way; `tls` then holds for conversations. Every method raises a
    TurnScoreError.

    Raises ValueError for arguments that make no sense.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        timeout_seconds: float = _defaults.TIMEOUT_SECONDS,
        max_retries: int = _defaults.MAX_RETRIES,
        transport: AsyncTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = ClientSettings.resolve(url, api_key, timeout_seconds, max_retries)
        super().__init__(AsyncHttpDoor(settings, tls, transport), settings, clock)
