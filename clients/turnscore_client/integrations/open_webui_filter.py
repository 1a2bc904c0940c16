"""Open WebUI: a filter function that scores every answer of a chat behind its back.

In Open WebUI's admin panel a function of two lines holds it:

    # requirements: turnscore-client
    from turnscore_client.integrations.open_webui_filter import Filter
"""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from turnscore_client._background import BackgroundScorer, TurnIds

_LOGGER = logging.getLogger("turnscore_client.integrations")


class Filter:
    """Its valves are set in the panel. It changes nothing in a chat."""

    class Valves(BaseModel):
        """What an administrator sets."""

        url: str = Field(default="", description="turnscore's address; else TURNSCORE_URL.")
        api_key: str = Field(default="", description="Its key; else TURNSCORE_API_KEY.")
        scorers: str = Field(default="", description="Scorers, separated by commas; else the service's own.")
        priority: int = Field(default=0, description="Filters of lower priority run first.")

    def __init__(self) -> None:
        self.valves = self.Valves()
        self._background: BackgroundScorer | None = None
        self._made_of: tuple[str, str, str] | None = None

    async def outlet(self, body: dict[str, Any], __metadata__: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The body as it came; its last message is submitted."""
        known = __metadata__ or {}
        session = body.get("chat_id") or known.get("chat_id")
        ids = TurnIds(span_id=body.get("id") or known.get("message_id"), session_id=session)
        messages = body.get("messages")
        if isinstance(messages, list):
            try:
                self.background.submit(messages, ids)
            except ValueError as error:  # a valve that makes no sense; its words are the administrator's
                _LOGGER.warning("turns are not scored: %s", error)
        return body

    @property
    def background(self) -> BackgroundScorer:
        """What scores; replaced when the valves have changed."""
        valves = self.valves
        wanted = (valves.url, valves.api_key, valves.scorers)
        if self._background is None or wanted != self._made_of:
            if self._background is not None:
                self._background.close(goodbye_seconds=0.0)
            names = [name.strip() for name in valves.scorers.split(",") if name.strip()]
            self._background = BackgroundScorer(
                url=valves.url or None, api_key=valves.api_key or None, scorers=names or None
            )
            self._made_of = wanted
        return self._background
