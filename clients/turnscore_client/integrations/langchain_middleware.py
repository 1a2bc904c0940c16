"""LangChain: a middleware for agents that scores answers and may gate them, and callbacks for plain LangGraph."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Unpack
from uuid import UUID

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds
from turnscore_client._errors import needs_extra
from turnscore_client.integrations._gate import QualityGate, ReplyOptions

with needs_extra("langchain", "the LangChain middleware"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain.chat_models import init_chat_model
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, convert_to_openai_messages
    from langgraph.config import get_config

_MOST_RUNS = 1024  # chosen: model calls of one process that are under way; the oldest is forgotten


class TurnScoreMiddleware(AgentMiddleware[Any, Any]):
    """`create_agent(model, tools, middleware=[TurnScoreMiddleware()])`.

    With a gate, final answers pass it; its `fallback_model` may be a chat model, or what `init_chat_model` takes.
    """

    def __init__(self, *, gate: QualityGate | None = None, **given: Unpack[BackgroundOptions]) -> None:
        super().__init__()
        if gate is not None:
            gate.check("LangChain", str, BaseChatModel)
        self.gate, self.background = gate, BackgroundScorer(**given)

    def after_agent(self, state: Any, runtime: Any) -> None:
        self.background.submit(state["messages"], _current_ids(), _to_openai)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.after_agent(state, runtime)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        first = handler(request)
        return first if self.gate is None else self.gate.choose(request.messages, first, **_replies(request, handler))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        first = await handler(request)
        if self.gate is None:
            return first
        return await self.gate.achoose(request.messages, first, **_replies(request, handler))


class TurnScoreCallback(BaseCallbackHandler):
    """`graph.invoke(state, config={"callbacks": [TurnScoreCallback()]})`: scores each answer of a chat model."""

    def __init__(self, **given: Unpack[BackgroundOptions]) -> None:
        self.background = BackgroundScorer(**given)
        self._asked: OrderedDict[UUID, tuple[Sequence[Any], TurnIds]] = OrderedDict()

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, metadata: Any = None, **kwargs: Any
    ) -> None:
        """Keeps what the model is asked, for its answer."""
        known = metadata or {}
        session = known.get("session_id") or known.get("thread_id")
        ids = TurnIds(trace_id=str(run_id), session_id=None if session is None else str(session))
        self._asked[run_id] = (messages[0], ids)
        while len(self._asked) > _MOST_RUNS:
            self._asked.popitem(last=False)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Hands the answer over, unless it calls tools."""
        messages, ids = self._asked.pop(run_id, ((), TurnIds()))
        answer = getattr(response.generations[0][0], "message", None) if response.generations else None
        if answer is not None and messages and not getattr(answer, "tool_calls", None):
            self.background.submit([*messages, answer], ids, _to_openai)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._asked.pop(run_id, None)


def _replies(request: Any, handler: Callable[[Any], Any]) -> ReplyOptions:
    def ask(model: Any) -> Any:
        model = init_chat_model(model) if isinstance(model, str) else model
        return handler(request if model is None else request.override(model=model))

    return {
        "ask": ask,
        "text_of": _text_of,
        "say": AIMessage,
        "convert": _to_openai,
        "conversation": _current_ids().session_id,
    }


def _to_openai(messages: Sequence[Any]) -> Any:
    return convert_to_openai_messages(list(messages))


def _text_of(response: Any) -> str | None:
    """The words of a model's response; None while it calls tools."""
    message = response.result[-1] if getattr(response, "result", None) else response
    if not isinstance(message, AIMessage) or message.tool_calls:
        return None
    return message.text if isinstance(message.text, str) else message.text()


def _current_ids() -> TurnIds:
    """The thread's id, as LangGraph's checkpoints know it."""
    try:
        thread = get_config().get("configurable", {}).get("thread_id")
    except RuntimeError:  # outside of a graph
        thread = None
    return TurnIds(session_id=None if thread is None else str(thread))
