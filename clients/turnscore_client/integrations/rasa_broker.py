"""Rasa: an event broker that scores what the bot says, in endpoints.yml:

event_broker:
  type: turnscore_client.integrations.rasa_broker.TurnScoreBroker
  url: http://localhost:3000
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from turnscore_client import _defaults
from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds

if TYPE_CHECKING:
    EventBroker = object
else:
    try:
        from rasa.core.brokers.broker import EventBroker
    except ImportError:  # a test, or a process that reads Rasa's events from elsewhere
        EventBroker = object

_MOST_SENDERS = 4096  # chosen; who was silent longest is forgotten
_ROLES = {"user": "user", "bot": "assistant"}
_SETTINGS = ("url", "api_key", "scorers", "max_waiting", "concurrency", "timeout_seconds")


class TurnScoreBroker(EventBroker):
    """Takes every event of every tracker; of a bot's several messages in a row the last is scored with those before."""

    def __init__(self, **given: Unpack[BackgroundOptions]) -> None:
        self.background = BackgroundScorer(**given)
        self._dialogues: OrderedDict[str, deque[dict[str, str]]] = OrderedDict()

    @classmethod
    async def from_endpoint_config(cls, broker_config: Any, event_loop: Any = None) -> Self | None:  # noqa: ARG003
        """The broker that endpoints.yml describes."""
        if broker_config is None:
            return None
        given: Mapping[str, Any] = {**(broker_config.kwargs or {}), "url": broker_config.url}
        return cls(**{name: given[name] for name in _SETTINGS if given.get(name) is not None})

    def publish(self, event: Mapping[str, Any]) -> None:
        """Takes one event; what is no message is left."""
        role, text = _ROLES.get(str(event.get("event"))), event.get("text")
        if role is None or not isinstance(text, str) or not text or text.startswith("/"):
            return  # `/greet` is an intent that a button sent
        sender = str(event.get("sender_id") or "")
        dialogue = self._dialogues.setdefault(sender, deque(maxlen=_defaults.BACKGROUND_MESSAGES))
        self._dialogues.move_to_end(sender)
        if len(self._dialogues) > _MOST_SENDERS:
            self._dialogues.popitem(last=False)
        dialogue.append({"role": role, "content": text})
        if role == "assistant":
            metadata = event.get("metadata") or {}
            self.background.submit(dialogue, TurnIds(span_id=metadata.get("message_id"), session_id=sender or None))

    def is_ready(self) -> bool:
        """Whether events may come: always."""
        return True

    async def close(self) -> None:
        """Waits a moment for the last turns."""
        self.background.close()
