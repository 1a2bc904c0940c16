"""Open WebUI: a filter function that scores every answer of a chat behind its back, and may gate it.

In Open WebUI's admin panel a function of two lines holds it. Once the client is published, the first installs it; until
then install it in Open WebUI's environment.

    # requirements: turnscore-client
    from turnscore_client.integrations.open_webui_filter import Filter
"""

import inspect
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from turnscore_client import _defaults
from turnscore_client._background import BackgroundScorer, TurnIds
from turnscore_client.integrations._gate import QualityGate

_LOGGER = logging.getLogger("turnscore_client.integrations")


class Filter:
    """Its valves are set in the panel. Without `on_low` and `on_user` it changes nothing in a chat."""

    class Valves(BaseModel):
        """What an administrator sets."""

        url: str = Field(default="", description="turnscore's address; else TURNSCORE_URL.")
        api_key: str = Field(default="", description="Its key; else TURNSCORE_API_KEY.")
        scorers: str = Field(default="", description="Scorers, separated by commas; else the service's own.")
        on_low: str = Field(default="", description="ask_again, fallback_model or hand_over, when an answer is low.")
        on_user: str = Field(default="", description="The user's signals, separated by commas, that do the same.")
        fallback_model: str = Field(default="", description="The id of a stronger model here.")
        hand_over: str = Field(default="", description="A message instead of the answer.")
        min_quality: float | None = Field(default=None, description="The value of an answer that is not low.")
        max_calls_per_conversation: int = Field(
            default=_defaults.GATE_CALLS_PER_CONVERSATION, description="Second answers in a chat."
        )
        max_calls_per_hour: int = Field(default=_defaults.GATE_CALLS_PER_HOUR, description="In all chats.")
        deadline_seconds: float = Field(default=_defaults.GATE_DEADLINE_SECONDS, description="What an answer may wait.")
        priority: int = Field(default=0, description="Filters of lower priority run first.")

    def __init__(self) -> None:
        self.valves = self.Valves()
        self.background: BackgroundScorer | None = None
        self.gate: QualityGate | None = None
        self._made_of: Filter.Valves | None = None

    async def outlet(
        self,
        body: dict[str, Any],
        __metadata__: Mapping[str, Any] | None = None,
        __user__: Mapping[str, Any] | None = None,
        __request__: Any = None,
    ) -> dict[str, Any]:
        """The body, whose last message may be another; it is submitted."""
        known = __metadata__ or {}
        session = body.get("chat_id") or known.get("chat_id")
        ids = TurnIds(span_id=body.get("id") or known.get("message_id"), session_id=session)
        messages = body.get("messages")
        if not isinstance(messages, list):
            return body
        try:
            self._make()
        except ValueError as error:  # a valve that makes no sense; its words are the administrator's
            _LOGGER.warning("turns are not scored: %s", error)
            return body
        if self.gate is not None and messages and isinstance(messages[-1].get("content"), str):
            ask = partial(_ask, __request__, __user__ or {}, body)
            *asked, last = messages
            last["content"] = await self.gate.achoose(asked, last["content"], ask=ask, conversation=session)
        if self.background is not None:
            self.background.submit(messages, ids)
        return body

    def _make(self) -> None:
        """Makes what scores, where the valves have changed."""
        if self.valves == self._made_of:
            return
        if self.background is not None:
            self.background.close(goodbye_seconds=0.0)
        if self.gate is not None:
            self.gate.close()
        self.background = self.gate = self._made_of = None
        given = {name: value for name, value in self.valves.model_dump(exclude={"priority"}).items() if value != ""}
        scorers, on_user = (_names(given.pop(name, "")) for name in ("scorers", "on_user"))
        if "on_low" in given or on_user:
            self.gate = QualityGate(on_user=on_user, **given)
            self.gate.check("Open WebUI", str)
        service = {name: given[name] for name in ("url", "api_key") if name in given}
        self.background = BackgroundScorer(scorers=scorers or None, **service)
        self._made_of = self.valves.model_copy()


def _names(valve: str) -> list[str]:
    return [name.strip() for name in valve.split(",") if name.strip()]


async def _ask(request: Any, user: Mapping[str, Any], body: Mapping[str, Any], model: str | None) -> str:
    """Another answer, of Open WebUI's own models (docs.openwebui.com, "Using Internal Open WebUI Functions")."""
    from open_webui.models.users import Users
    from open_webui.utils.chat import generate_chat_completion

    found = Users.get_user_by_id(user["id"])
    messages = [{"role": each["role"], "content": each["content"]} for each in body["messages"][:-1]]
    asked = {"model": model or body["model"], "messages": messages, "stream": False}
    answer = await generate_chat_completion(request, asked, await found if inspect.isawaitable(found) else found)
    return str(answer["choices"][0]["message"]["content"])
