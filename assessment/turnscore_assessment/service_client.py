"""The service that commands ask for scores: how long they wait for it, and how much they ask at once."""

from collections.abc import Callable

import typer
from turnscore_client import AsyncTurnScoreClient

CALL_SECONDS = 60.0
"""For one dialogue, retries included. Chosen: six times the client's own, as nobody waits for a single answer."""
CALLS_IN_FLIGHT = 4
"""Chosen: some 40 turns, which fill a batch and leave the service room for others."""

OpenClient = Callable[[], AsyncTurnScoreClient]


def client_of(url: str | None, seconds: float | None = None) -> OpenClient:
    """Opens a client of that service, or of TURNSCORE_URL's; BadParameter, once called, for an address that is none."""

    def open_client() -> AsyncTurnScoreClient:
        try:
            return AsyncTurnScoreClient(url, timeout_seconds=seconds or CALL_SECONDS)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return open_client
