"""Open WebUI's filter and Rasa's broker: plain classes, fed what these two send, as their documentation has it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from turnscore_client import BackgroundScorer
from turnscore_client.integrations import QualityGate, TurnIds
from turnscore_client.integrations.open_webui_filter import Filter
from turnscore_client.integrations.rasa_broker import TurnScoreBroker


@pytest.fixture
def told():
    return []


@pytest.fixture
def broker(mock, told):
    broker = TurnScoreBroker(client=mock.client(max_retries=0), on_scored=told.append, concurrency=1)
    yield broker
    broker.background.close()


@pytest.fixture
def webui(mock, told, monkeypatch):
    def watch(**given):
        return BackgroundScorer(client=mock.client(max_retries=0), on_scored=told.append, scorers=given["scorers"])

    def judge(**given):
        return QualityGate(client=mock.client(max_retries=0), **given)

    monkeypatch.setattr("turnscore_client.integrations.open_webui_filter.BackgroundScorer", watch)
    monkeypatch.setattr("turnscore_client.integrations.open_webui_filter.QualityGate", judge)
    filter_ = Filter()
    yield filter_
    if filter_.background is not None:
        filter_.background.close()


def body():
    return {
        "model": "llama",
        "chat_id": "chat 7",
        "id": "message 3",
        "messages": [
            {"id": "1", "role": "system", "content": "you are a pirate", "timestamp": 1},
            {"id": "2", "role": "user", "content": "hi", "timestamp": 2},
            {"id": "3", "role": "assistant", "content": "hello", "timestamp": 3, "usage": {"total_tokens": 3}},
        ],
    }


async def test_an_outlet_returns_its_body_and_has_its_last_message_scored(webui, mock, told):
    given = body()
    assert await webui.outlet(given, __metadata__={"chat_id": "other"}) is given
    assert given == body()
    assert webui.background.wait_until_idle(30)
    [request] = mock.requests
    assert request.body == {**request.body, "context": [{"speaker": "user", "text": "hi"}], "response": "hello"}
    assert told[0].tag == TurnIds(span_id="message 3", session_id="chat 7")


async def test_a_valve_without_sense_leaves_the_chat_alone(caplog):
    webui = Filter()
    webui.valves = webui.Valves(url="nowhere")
    assert await webui.outlet(body()) == body()
    assert "url must look like" in caplog.text


@pytest.mark.parametrize("messages", [None, [], [{"role": "user", "content": "hi"}], "hello"])
async def test_a_body_without_an_answer_is_left_alone(webui, mock, messages):
    assert await webui.outlet({"messages": messages}) == {"messages": messages}
    assert webui.background is None or webui.background.wait_until_idle(30)
    assert mock.requests == []


@pytest.fixture
def models(monkeypatch):
    """What Open WebUI's own models were asked, as its documentation has their functions."""
    asked = []

    async def generate_chat_completion(request, form_data, user):
        asked.append((request, form_data, user))
        return {"choices": [{"message": {"role": "assistant", "content": "a better answer"}}]}

    class Users:
        get_user_by_id = staticmethod(lambda name: f"user {name}")

    for name, holds in {
        "open_webui": {}, "open_webui.models": {}, "open_webui.utils": {}, "open_webui.models.users": {"Users": Users},
        "open_webui.utils.chat": {"generate_chat_completion": generate_chat_completion},
    }.items():  # fmt: skip
        module = ModuleType(name)
        module.__dict__.update(holds)
        monkeypatch.setitem(sys.modules, name, module)
    return asked


ANSWERS = [
    ({"on_low": "ask_again"}, "a better answer", "llama"),
    ({"on_low": "fallback_model", "fallback_model": "strong"}, "a better answer", "strong"),
    ({"on_low": "hand_over", "hand_over": "one moment"}, "one moment", None),
    ({"on_low": "ask_again", "min_quality": 0.1}, "hello", None),
]


@pytest.mark.parametrize(("valves", "answer", "model"), ANSWERS)
async def test_a_low_answer_of_open_webui_is_replaced(webui, mock, told, models, valves, answer, model):
    mock.scores, mock.thresholds = {"quality": 0.2}, {"quality": 0.5}
    webui.valves = webui.Valves(**valves)
    out = await webui.outlet(body(), __user__={"id": "7"}, __request__="the request")
    assert [each["content"] for each in out["messages"]] == ["you are a pirate", "hi", answer]
    asked = [{"role": "system", "content": "you are a pirate"}, {"role": "user", "content": "hi"}]
    expected = ("the request", {"model": model, "messages": asked, "stream": False}, "user 7")
    assert models == ([expected] if model else [])
    assert webui.background.wait_until_idle(30)
    assert mock.requests[-1].body["response"] == answer


@pytest.mark.parametrize("valve", ["max_calls_per_conversation", "max_calls_per_hour"])
async def test_a_chat_of_open_webui_has_no_more_second_answers_than_its_valves_say(webui, mock, models, valve):
    mock.scores, mock.thresholds = {"quality": 0.2}, {"quality": 0.5}
    webui.valves = webui.Valves(on_low="ask_again", **{valve: 1})
    out = [await webui.outlet(body(), __user__={"id": "7"}) for _ in range(2)]
    assert [each["messages"][-1]["content"] for each in out] == ["a better answer", "hello"]


@pytest.mark.parametrize("valves", [{"on_low": "hand_over"}, {"on_user": "abuse", "max_calls_per_hour": 0}])
async def test_valves_of_a_gate_without_sense_leave_the_chat_alone(webui, caplog, valves):
    good = webui.valves
    await webui.outlet(body())
    webui.valves = webui.Valves(**valves)
    assert await webui.outlet(body()) == body()
    assert "turns are not scored" in caplog.text
    webui.valves = good
    await webui.outlet(body())
    assert webui.background is not None, "what was set right scores again"


def said(event, text, sender="chat 7", **more):
    return {"sender_id": sender, "event": event, "timestamp": 1.0, "text": text, **more}


def test_a_rasa_bot_s_messages_are_scored_in_their_conversation(broker, mock, told):
    broker.publish({"sender_id": "chat 7", "event": "action", "name": "action_session_start"})
    broker.publish(said("user", "hi", parse_data={"intent": {"name": "greet"}}))
    broker.publish(said("bot", "from elsewhere", sender="chat 8"))
    broker.publish(said("slot", None, name="city", value="grimsby"))
    broker.publish(said("bot", "hello", metadata={"message_id": "m1"}, data={}))
    broker.publish(said("bot", "how are you?"))
    assert broker.background.wait_until_idle(30)
    asked = [(request.body["response"], len(request.body.get("context", []))) for request in mock.requests]
    assert asked == [("from elsewhere", 0), ("hello", 1), ("how are you?", 2)]
    assert told[1].tag == TurnIds(span_id="m1", session_id="chat 7")


@pytest.mark.parametrize(
    "event", [{}, said("bot", None), said("bot", ""), said("user", "/greet"), {"event": 7}, said("bot", 7)]
)
def test_what_is_no_message_is_left(broker, mock, event):
    broker.publish(event)
    assert broker.background.wait_until_idle(30)
    assert mock.requests == []


async def test_the_broker_is_made_of_endpoints_yml():
    kwargs = {"type": "turnscore_client...", "scorers": ["quality"], "max_waiting": 7}
    endpoint = SimpleNamespace(url="http://turnscore.example:3000", kwargs=kwargs)
    broker = await TurnScoreBroker.from_endpoint_config(endpoint, event_loop=None)
    assert broker.is_ready()
    assert (broker.background._max_waiting, broker.background._scorers) == (7, ["quality"])
    assert await TurnScoreBroker.from_endpoint_config(None) is None
    await broker.close()
