"""The service that scores for commands: how long they wait for it, and how much they ask at once."""

from collections.abc import Callable

import typer
from turnscore_client import AsyncTurnScoreClient

CALL_SECONDS = 60.0
"""Seconds for one dialogue, retries included. Chosen: six times the client's own, since no user waits."""
CALLS_IN_FLIGHT = 4
"""Dialogues in flight. Chosen: some 40 turns, which fill a batch and leave the service room for others."""

OpenClient = Callable[[], AsyncTurnScoreClient]


def client_of(url: str | None, seconds: float | None = None) -> OpenClient:
    """Opens a client of that service, or of TURNSCORE_URL's; raises BadParameter, once called, for a wrong address."""

    def open_client() -> AsyncTurnScoreClient:
        try:
            return AsyncTurnScoreClient(url, timeout_seconds=seconds or CALL_SECONDS)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return open_client
