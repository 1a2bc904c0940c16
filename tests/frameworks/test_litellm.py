"""LiteLLM, the real package, with its own mock of a model: completions, streams and the proxy's hook."""

import os
import sys
from types import ModuleType
from typing import Any, ClassVar

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network
litellm = pytest.importorskip("litellm", reason="LiteLLM is not installed: make integrations")

from turnscore_client.integrations import QualityGate  # noqa: E402
from turnscore_client.integrations.litellm_logger import TurnScoreLogger  # noqa: E402

MESSAGES = [{"role": "system", "content": "you are a detective"}, {"role": "user", "content": ASKED}]


@pytest.fixture(autouse=True)
def _no_callbacks_are_left():
    yield
    litellm.callbacks = []
    litellm.logging_callback_manager._reset_all_callbacks()


async def complete(answer: str = ANSWERED, **given: Any) -> Any:
    return await litellm.acompletion(model="gpt-4o-mini", messages=MESSAGES, mock_response=answer, **given)


def use(logger: TurnScoreLogger) -> TurnScoreLogger:
    litellm.callbacks = [logger]
    return logger


async def test_an_answer_is_scored_with_what_was_asked(service: Service):
    use(TurnScoreLogger(**service.options()))
    response = await complete(metadata={"session_id": "chat 7"})
    assert response.choices[0].message.content == ANSWERED
    await until(lambda: service.told, 30)
    [body] = service.asked
    assert (body["context"], body["response"]) == ([{"speaker": "user", "text": ASKED}], ANSWERED)
    [scored] = service.told
    assert scored.reply.scores["quality"].value == 0.7
    assert scored.tag.span_id == response.id
    assert (bool(scored.tag.trace_id), scored.tag.session_id) == (True, "chat 7")


async def test_a_stream_is_scored_when_it_has_ended(service: Service):
    use(TurnScoreLogger(**service.options()))
    parts = [part.choices[0].delta.content or "" async for part in await complete(stream=True)]
    assert "".join(parts) == ANSWERED
    await until(lambda: service.told, 30)
    assert [body["response"] for body in service.asked] == [ANSWERED]


async def test_what_litellm_redacts_is_not_scored(service: Service, monkeypatch: pytest.MonkeyPatch):
    class Counting(TurnScoreLogger):
        events = 0

        async def async_log_success_event(self, *given: Any, **named: Any) -> None:
            await super().async_log_success_event(*given, **named)
            self.events += 1

    logger = use(Counting(**service.options()))
    monkeypatch.setattr(litellm, "turn_off_message_logging", True)
    await complete()
    await until(lambda: logger.events, 30)
    monkeypatch.setattr(litellm, "turn_off_message_logging", False)
    await complete(GOOD)
    await until(lambda: service.told, 30)
    assert [body["response"] for body in service.asked] == [GOOD]


async def test_an_unwell_service_costs_the_chatbot_nothing(unwell: Service, patience: Patience):
    logger = use(TurnScoreLogger(**unwell.options()))
    with patience:
        assert (await complete()).choices[0].message.content == ANSWERED
        await until(lambda: logger.background._held or unwell.told, 30)
    assert patience.seconds < 3
    logger.background.close(0)


class Models(litellm.CustomLLM):
    """Providers of this process: each model says what its name stands for."""

    asked: ClassVar[list[dict[str, Any]]] = []

    async def acompletion(self, model: str, messages: Any, model_response: Any, **given: Any) -> Any:
        self.asked.append(
            {"model": model, "messages": messages, "temperature": given["optional_params"].get("temperature")}
        )
        model_response.choices[0].message.content = {"weak": BAD, "strong": GOOD}[model]
        return model_response


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(Models, "asked", [])
    monkeypatch.setattr(litellm, "custom_provider_map", [{"provider": "own", "custom_handler": Models()}])
    litellm.utils.custom_llm_setup()
    return Models.asked


@pytest.mark.parametrize(
    ("given", "answer", "asked"),
    [
        ({"on_low": "ask_again"}, BAD, ["weak"]),
        ({"on_low": "fallback_model", "fallback_model": "own/strong"}, GOOD, ["strong"]),
        ({"on_low": "hand_over", "hand_over": "one moment"}, "one moment", []),
    ],
)
async def test_a_low_answer_of_the_proxy_is_replaced(service: Service, models, given, answer, asked):
    gate = QualityGate(url=service.url, deadline_seconds=30, **given)
    logger = TurnScoreLogger(gate=gate, **service.options())
    data = {
        "model": "own/weak", "messages": MESSAGES, "temperature": 0.5, "stream": False,
        "metadata": {"session_id": "chat 7"}, "proxy_server_request": {}, "litellm_call_id": "1",
    }  # fmt: skip
    second = await logger.async_post_call_success_hook(data, None, await complete(BAD))
    assert second.choices[0].message.content == answer
    assert models == [{"model": name, "messages": MESSAGES, "temperature": 0.5} for name in asked]
    fine = await complete(ANSWERED)
    assert await logger.async_post_call_success_hook(data, None, fine) is fine
    assert (gate.low, gate.passed) == (1, 1)
    gate.close()


async def test_the_proxy_s_own_models_are_asked_by_its_router(service: Service, models, monkeypatch):
    proxy = ModuleType("litellm.proxy.proxy_server")
    proxy.llm_router = litellm.Router(
        model_list=[{"model_name": "the-strong-one", "litellm_params": {"model": "own/strong"}}]
    )
    monkeypatch.setitem(sys.modules, proxy.__name__, proxy)
    gate = QualityGate("fallback_model", fallback_model="the-strong-one", url=service.url, deadline_seconds=30)
    logger = TurnScoreLogger(gate=gate, **service.options())
    data = {"model": "the-weak-one", "messages": MESSAGES}
    second = await logger.async_post_call_success_hook(data, None, await complete(BAD))
    assert second.choices[0].message.content == GOOD
    gate.close()
