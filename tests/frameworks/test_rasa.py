"""Rasa 3.6, its real event brokers and generators of responses, without the rest, which does not run on our Python: it
names their classes in endpoints.yml, and loads them so."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

try:
    FOLDER = distribution("rasa").locate_file("rasa")
except PackageNotFoundError:
    pytest.skip("Rasa is not installed: make integrations", allow_module_level=True)

for name in ("rasa", "rasa.core"):  # without their __init__, which import TensorFlow
    package = ModuleType(name)
    package.__path__ = [str(FOLDER.joinpath(*name.split(".")[1:]))]  # type: ignore[attr-defined]
    sys.modules[name] = package

from rasa.core.brokers.broker import EventBroker  # noqa: E402
from rasa.core.nlg import NaturalLanguageGenerator, TemplatedNaturalLanguageGenerator  # noqa: E402
from rasa.shared.core.domain import Domain  # noqa: E402
from rasa.shared.core.events import ActionExecuted, UserUttered  # noqa: E402
from rasa.shared.core.trackers import DialogueStateTracker  # noqa: E402
from rasa.utils.endpoints import EndpointConfig  # noqa: E402
from turnscore_client.integrations import GateEvent  # noqa: E402
from turnscore_client.integrations.rasa_broker import TurnScoreBroker  # noqa: E402

TYPE = "turnscore_client.integrations.rasa_broker.TurnScoreBroker"


async def created(service: Service) -> Any:
    return await EventBroker.create(EndpointConfig(url=service.url, type=TYPE, timeout_seconds=10.0))


def said(event: str, text: str) -> dict[str, Any]:
    """What a tracker store publishes of a message (rasa.core.tracker_store, _stream_events)."""
    return {"sender_id": "chat 7", "event": event, "timestamp": 1.5, "metadata": {}, "text": text}


async def test_rasa_makes_the_broker_of_its_endpoints_and_has_its_bot_scored(service: Service):
    broker = await created(service)
    assert isinstance(broker, TurnScoreBroker)
    assert isinstance(broker, EventBroker)
    assert broker.is_ready()
    broker.publish(said("user", ASKED))
    broker.publish(said("bot", ANSWERED))
    await until(lambda: broker.background.scored, 30)
    [body] = service.asked
    assert (body["context"], body["response"]) == ([{"speaker": "user", "text": ASKED}], ANSWERED)
    await broker.close()


async def test_an_unwell_service_costs_the_bot_nothing(unwell: Service, patience: Patience):
    broker = await created(unwell)
    with patience:
        for _ in range(20):
            broker.publish(said("bot", ANSWERED))
    assert patience.seconds < 1
    broker.background.close(0)


def answer_again(event: GateEvent) -> str:
    """What `fallback_model` names."""
    assert (event.conversation, event.messages) == ("chat 7", [{"role": "user", "content": ASKED}])
    return GOOD


async def said_by(url: str, responses: dict[str, Any], utter: str, **options: Any) -> Any:
    """What Rasa's agent says of a domain that it loads after the generator was made."""
    type_ = "turnscore_client.integrations.rasa_broker.TurnScoreNLG"
    nlg = NaturalLanguageGenerator.create(EndpointConfig(url=url, type=type_, **options), Domain.empty())
    assert isinstance(nlg, TemplatedNaturalLanguageGenerator)
    nlg.responses = responses
    tracker = DialogueStateTracker.from_events("chat 7", [ActionExecuted("action_listen"), UserUttered(ASKED)])
    said = await nlg.generate(utter, tracker, "rest")
    nlg.gate.close()
    return said


RESPONSES = {"utter_bad": [{"text": BAD}], "utter_fine": [{"text": ANSWERED, "buttons": []}]}


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"on_low": "fallback_model", "fallback_model": "a_bot_s_own.answer_again"}, GOOD),
        ({"on_low": "hand_over", "hand_over": "one moment"}, "one moment"),
        ({"on_low": "ask_again"}, BAD),
    ],
)
async def test_a_low_response_of_the_domain_is_replaced(service: Service, monkeypatch, options, answer):
    own = ModuleType("a_bot_s_own")
    own.answer_again = answer_again  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, own.__name__, own)
    assert (await said_by(service.url, RESPONSES, "utter_bad", **options))["text"] == answer
    assert await said_by(service.url, RESPONSES, "utter_fine", **options) == {"text": ANSWERED, "buttons": []}
    assert await said_by(service.url, RESPONSES, "utter_none", **options) is None
