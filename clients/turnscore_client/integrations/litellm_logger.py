"""LiteLLM: a CustomLogger that scores every answer behind the caller's back, and on the proxy may gate it."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds
from turnscore_client._errors import needs_extra
from turnscore_client.integrations._gate import QualityGate

with needs_extra("litellm", "the LiteLLM logger"):
    import litellm
    from litellm.constants import OPENAI_CHAT_COMPLETION_PARAMS
    from litellm.integrations.custom_logger import CustomLogger

_CALL = {"messages", "metadata", *OPENAI_CHAT_COMPLETION_PARAMS}  # of the proxy's data, what makes another call


class TurnScoreLogger(CustomLogger):
    """`litellm.callbacks = [TurnScoreLogger()]`, or named in the proxy's `callbacks`.

    With a gate the proxy's answers that are not streamed pass it; its `fallback_model` may be a model's name.
    """

    def __init__(self, *, gate: QualityGate | None = None, **given: Unpack[BackgroundOptions]) -> None:
        super().__init__()
        if gate is not None:
            gate.check("LiteLLM", str)
        self.gate, self.background = gate, BackgroundScorer(**given)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._submit(kwargs)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._submit(kwargs)

    async def async_post_call_success_hook(self, data: Any, user_api_key_dict: Any, response: Any) -> Any:
        if self.gate is None or not isinstance(data.get("messages"), list):
            return response

        def say(text: str) -> Any:
            said = response.model_copy(deep=True)
            said.choices[0].message.content = text
            return said

        return await self.gate.achoose(
            data["messages"],
            response,
            ask=partial(_ask, data),
            text_of=_text_of,
            say=say,
            conversation=_session_of(data.get("metadata"), data),
        )

    def _submit(self, kwargs: Mapping[str, Any]) -> None:
        logged = kwargs.get("standard_logging_object")
        if logged:
            self.background.submit([logged], _ids_of(kwargs, logged), _messages_of)


def _ids_of(kwargs: Mapping[str, Any], logged: Mapping[str, Any]) -> TurnIds:
    asked = kwargs.get("litellm_params") or {}
    session = logged.get("session_id") or _session_of(asked.get("metadata"), asked)
    return TurnIds(trace_id=logged.get("trace_id"), span_id=logged.get("id"), session_id=session)


def _session_of(metadata: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> str | None:
    session = (metadata or {}).get("session_id") or asked.get("litellm_session_id")
    return None if session is None else str(session)


async def _ask(data: Mapping[str, Any], model: str | None) -> Any:
    """Another answer, by the proxy's own models where this is the proxy."""
    call = {name: data[name] for name in _CALL if name in data}
    router = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
    complete = litellm.acompletion if router is None else router.acompletion
    return await complete(**{**call, "model": model or data["model"], "stream": False})


def _messages_of(payloads: Any) -> list[dict[str, Any]]:
    """The request's messages and the answer's."""
    [logged] = payloads
    messages, response = logged.get("messages"), logged.get("response")
    if not isinstance(messages, list) or not isinstance(response, Mapping) or not response.get("choices"):
        return []  # an embedding or an image: no turn
    answer = response["choices"][0].get("message") or {}
    # what `turn_off_message_logging` puts in place of texts
    return [] if answer.get("content") == "redacted-by-litellm" else [*messages, answer]


def _text_of(response: Any) -> str | None:
    """The words of a response; None for one that calls tools or is none."""
    choices = getattr(response, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    if message is None or getattr(message, "tool_calls", None):
        return None
    return getattr(message, "content", None)
