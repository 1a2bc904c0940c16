"""LiteLLM: a CustomLogger that scores every answer behind the caller's back, and on the proxy may gate it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from turnscore_wire import Score

from turnscore_client._background import GateOptions, TurnIds
from turnscore_client._errors import needs_extra
from turnscore_client.integrations._gate import Hook

with needs_extra("litellm", "the LiteLLM logger"):
    from litellm.integrations.custom_logger import CustomLogger

_REDACTED = "redacted-by-litellm"  # what `turn_off_message_logging` puts in place of texts

# From a request's data and the low score to another response, such as `litellm.acompletion(**data)`.
AnswerAgain = Callable[[dict[str, Any], Score], Awaitable[Any]]


class TurnScoreLogger(CustomLogger):
    """`litellm.callbacks = [TurnScoreLogger()]`, or named in the proxy's `callbacks`.

    With `min_quality` and `answer_again` the proxy's answers that were not streamed pass a gate.
    """

    def __init__(self, *, answer_again: AnswerAgain | None = None, **given: Unpack[GateOptions]) -> None:
        super().__init__()
        self.hook = Hook(given)
        self._answer_again = answer_again
        if (answer_again is None) != (self.hook.gate is None):
            raise ValueError("min_quality and answer_again need each other")

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._submit(kwargs)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._submit(kwargs)

    async def async_post_call_success_hook(self, data: Any, user_api_key_dict: Any, response: Any) -> Any:
        gate, answer_again = self.hook.gate, self._answer_again
        if gate is None or answer_again is None or not isinstance(data.get("messages"), list):
            return response
        return await gate.achoose(data["messages"], response, lambda score: answer_again(data, score), _text_of)

    def _submit(self, kwargs: Mapping[str, Any]) -> None:
        logged = kwargs.get("standard_logging_object")
        if logged:
            self.hook.background.submit([logged], _ids_of(kwargs, logged), _messages_of)


def _ids_of(kwargs: Mapping[str, Any], logged: Mapping[str, Any]) -> TurnIds:
    asked = kwargs.get("litellm_params") or {}
    session = logged.get("session_id") or (asked.get("metadata") or {}).get("session_id")
    session = session or asked.get("litellm_session_id")
    return TurnIds(trace_id=logged.get("trace_id"), span_id=logged.get("id"), session_id=session)


def _messages_of(payloads: Any) -> list[dict[str, Any]]:
    """The request's messages and the answer's."""
    [logged] = payloads
    messages, response = logged.get("messages"), logged.get("response")
    if not isinstance(messages, list) or not isinstance(response, Mapping) or not response.get("choices"):
        return []  # an embedding or an image: no turn
    answer = response["choices"][0].get("message") or {}
    if answer.get("content") == _REDACTED:
        return []
    return [*messages, answer]


def _text_of(response: Any) -> str | None:
    """The words of a response; None for one that calls tools or is none."""
    choices = getattr(response, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    if message is None or getattr(message, "tool_calls", None):
        return None
    return getattr(message, "content", None)
