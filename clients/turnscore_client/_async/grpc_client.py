"""The client for asyncio over gRPC (extra `grpc`), with the calls, types and errors of the one over HTTP."""

from typing import TYPE_CHECKING

from turnscore_client import _defaults
from turnscore_client._async.calls import AsyncCalls
from turnscore_client._clock import Clock
from turnscore_client._settings import GrpcClientSettings
from turnscore_client._tls import Tls

if TYPE_CHECKING:  # an installation without the extra has the classes, which say what to install when one is made
    import grpc


class AsyncTurnScoreGrpcClient(AsyncCalls):
    """A client of one turnscore service, to be kept and shared within one event loop: it reuses its connection.

    `address` is `host:port`; it and `api_key` default to the environment's TURNSCORE_GRPC_ADDRESS and
    TURNSCORE_API_KEY. `tls` encrypts: `Tls()` trusts the public authorities; without it everything goes in plain text.
    `timeout_seconds` is for a whole call: connecting, waiting, every retry and the delays between. `channel` is one of
    grpc.aio's, opened and encrypted in another way; the client closes it. Every method raises a TurnScoreError.

    Raises ValueError for arguments that make no sense. Without the extra, an ImportError says what to install.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        timeout_seconds: float = _defaults.TIMEOUT_SECONDS,
        max_retries: int = _defaults.MAX_RETRIES,
        channel: "grpc.aio.Channel | None" = None,
        clock: Clock | None = None,
    ) -> None:
        from turnscore_client._grpc.async_door import AsyncGrpcDoor

        settings = GrpcClientSettings.resolve(address, api_key, timeout_seconds, max_retries)
        super().__init__(AsyncGrpcDoor(settings, tls, channel), settings, clock)
