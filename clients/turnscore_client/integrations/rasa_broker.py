"""Rasa: an event broker that scores what the bot says, and a generator of responses that gates it, in endpoints.yml:

event_broker:
  type: turnscore_client.integrations.rasa_broker.TurnScoreBroker
  url: http://localhost:3000
nlg:
  type: turnscore_client.integrations.rasa_broker.TurnScoreNLG
  url: http://localhost:3000
  on_low: fallback_model
  fallback_model: my_module.answer
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, Unpack

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds
from turnscore_client.integrations._gate import QualityGate, new_dialogues

if TYPE_CHECKING:
    EventBroker = object
    TemplatedNaturalLanguageGenerator = object
else:
    try:
        from rasa.core.brokers.broker import EventBroker
    except ImportError:  # a test, or a process that reads Rasa's events from elsewhere
        EventBroker = object
    try:
        from rasa.core.nlg import TemplatedNaturalLanguageGenerator
    except ImportError:
        TemplatedNaturalLanguageGenerator = object

_ROLES = {"user": "user", "bot": "assistant"}
_SETTINGS = ("url", "api_key", "scorers", "max_waiting", "concurrency", "timeout_seconds")


class TurnScoreBroker(EventBroker):
    """Takes every event of every tracker; of a bot's several messages in a row the last is scored with those before."""

    def __init__(self, **given: Unpack[BackgroundOptions]) -> None:
        self.background = BackgroundScorer(**given)
        self._dialogues = new_dialogues()

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
        dialogue = self._dialogues.of(sender)
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


class TurnScoreNLG(TemplatedNaturalLanguageGenerator):
    """Says the domain's responses, which pass a gate: the options of endpoints.yml are a `QualityGate`'s.

    To ask again is to take another of a response's variations. `fallback_model` names a function, as `module.function`.
    """

    def __init__(self, endpoint_config: Any, domain: Any) -> None:
        self.responses = domain.responses  # as its own __init__ does
        given = {"url": endpoint_config.url, **endpoint_config.kwargs}
        if "fallback_model" in given:
            module, _, name = given["fallback_model"].rpartition(".")
            given["fallback_model"] = getattr(import_module(module), name)
        self.gate = QualityGate(**given)
        self.gate.check("Rasa")

    async def generate(self, utter_action: str, tracker: Any, output_channel: str, **given: Any) -> Any:
        """The response, or another; None where the domain has none."""
        respond = partial(super().generate, utter_action, tracker, output_channel, **given)  # type: ignore[misc]
        first = await respond()
        if first is None:
            return None
        return await self.gate.achoose(
            list(tracker.events),
            first,
            ask=lambda _: respond(),
            text_of=lambda response: response.get("text"),
            say=lambda text: {"text": text},
            convert=_to_openai,
            conversation=tracker.sender_id,
        )


def _to_openai(events: Any) -> list[dict[str, str]]:
    """What was said, of a tracker's events; `/greet` is an intent that a button sent."""
    said = [(_ROLES.get(getattr(event, "type_name", "")), getattr(event, "text", None)) for event in events]
    return [{"role": role, "content": text} for role, text in said if role and text and not text.startswith("/")]
