"""Rasa 3.6, its real event brokers, without the rest of Rasa, which does not run on our Python: it names the broker's
class in endpoints.yml, and loads it so."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, Patience, Service

try:
    FOLDER = distribution("rasa").locate_file("rasa")
except PackageNotFoundError:
    pytest.skip("Rasa is not installed: make integrations", allow_module_level=True)

for name in ("rasa", "rasa.core"):  # without their __init__, which import TensorFlow
    package = ModuleType(name)
    package.__path__ = [str(FOLDER.joinpath(*name.split(".")[1:]))]  # type: ignore[attr-defined]
    sys.modules[name] = package

from rasa.core.brokers.broker import EventBroker  # noqa: E402
from rasa.utils.endpoints import EndpointConfig  # noqa: E402
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
