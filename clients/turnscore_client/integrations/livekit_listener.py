"""LiveKit Agents: scores a session's turns, gates an agent's replies before they are spoken, and judges sessions."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from math import comb
from typing import Any, Unpack
from uuid import uuid4

from turnscore_client import _defaults
from turnscore_client._background import (
    BackgroundOptions,
    BackgroundScorer,
    RecentMessages,
    ServiceOptions,
    TurnIds,
    open_client,
)
from turnscore_client._errors import needs_extra
from turnscore_client.integrations._gate import QualityGate

with needs_extra("livekit", "the LiveKit listener"):
    from livekit.agents import Agent, inference
    from livekit.agents.evals import Judge, JudgmentResult
    from livekit.agents.llm import LLM

_ROLES = ("user", "assistant")
_FALSE_ALARMS = 0.05  # of good turns at most this share is labelled low: what a bundle's threshold promises
_UNLIKELY = 0.05  # chosen: how seldom a session of good turns fails


def listen(session: Any, *, session_id: str | None = None, **given: Unpack[BackgroundOptions]) -> BackgroundScorer:
    """Listens to an `AgentSession` until it closes; returns the scorer.

    A turn that the user interrupted is context and is not scored: the rest was not heard.
    """
    background = BackgroundScorer(**given)
    dialogue = RecentMessages()

    def on_item(event: Any) -> None:
        for message in _to_openai([event.item]):
            dialogue.append(message)
            if event.item.role == "assistant" and not event.item.interrupted:
                background.submit(dialogue, TurnIds(span_id=event.item.id, session_id=session_id))

    session.on("conversation_item_added", on_item)
    return background


class GatedAgent(Agent):
    """An `Agent` whose replies pass a gate before they are spoken, calls of tools excepted.

    The gate's deadline begins with the reply's first word: a reply that is longer in coming is spoken as it comes. Its
    `fallback_model` may be an `llm.LLM`, or a model's name that LiveKit Inference takes.
    """

    def __init__(self, *, gate: QualityGate, session_id: str | None = None, **given: Any) -> None:
        gate.check("LiveKit", str, LLM)
        super().__init__(**given)
        self._quality_gate, self._conversation = gate, session_id or uuid4().hex

    async def llm_node(self, chat_ctx: Any, tools: Any, model_settings: Any) -> AsyncIterator[Any]:
        """The default's, held back until it is complete and judged."""
        chunks: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            try:
                async for chunk in Agent.default.llm_node(self, chat_ctx, tools, model_settings):
                    chunks.put_nowait(chunk)
            finally:
                chunks.put_nowait(None)

        async def ask(model: Any) -> list[Any]:
            if model is None:
                return [chunk async for chunk in Agent.default.llm_node(self, chat_ctx, tools, model_settings)]
            chosen = inference.LLM(model) if isinstance(model, str) else model
            how = {
                "tool_choice": model_settings.tool_choice,
                "conn_options": self.session.conn_options.llm_conn_options,
            }
            async with chosen.chat(chat_ctx=chat_ctx, tools=tools, **how) as stream:
                return [chunk async for chunk in stream]

        reading = asyncio.create_task(read())
        try:
            held = [await chunks.get()]
            ends_at = time.monotonic() + self._quality_gate.deadline_seconds
            try:
                async with asyncio.timeout(self._quality_gate.deadline_seconds):
                    while held[-1] is not None:
                        held.append(await chunks.get())
            except TimeoutError:
                chosen = held
            else:
                await reading  # raises what the model raised
                chosen = await self._quality_gate.achoose(
                    chat_ctx.items,
                    held[:-1],
                    ask=ask,
                    text_of=_text_of,
                    say=lambda text: [text],
                    convert=_to_openai,
                    conversation=self._conversation,
                    seconds=ends_at - time.monotonic(),
                )
            for chunk in chosen:
                yield chunk
            while held[-1] is not None and (held := [await chunks.get()])[-1] is not None:
                yield held[-1]
            await reading
        finally:
            reading.cancel()


class TurnScoreJudge(Judge):
    """`JudgeGroup(judges=[TurnScoreJudge(), ...])`: fails a session with more low turns than good ones would have.

    By chance at most one turn in twenty is labelled low among good ones; a session of good ones fails as seldom. One
    with fewer low turns is a `maybe`, one without passes. No model is asked but the service's.
    """

    def __init__(self, *, name: str = "turnscore", scorer: str = "quality", **given: Unpack[ServiceOptions]) -> None:
        super().__init__(name=name)
        self._scorer = scorer
        self._client = open_client(given, timeout_seconds=_defaults.TIMEOUT_SECONDS, max_retries=_defaults.MAX_RETRIES)

    async def evaluate(self, *, chat_ctx: Any, reference: Any = None, llm: Any = None) -> JudgmentResult:
        """The judgement. Raises a TurnScoreError, which a group logs and leaves out."""
        messages = _to_openai(chat_ctx.items)
        reply = await asyncio.to_thread(self._client.score_dialogue, messages=messages, scorers=[self._scorer])
        labels = [turn.scores[self._scorer].label for turn in reply.turns if self._scorer in turn.scores]
        known, low = sum(label is not None for label in labels), labels.count("low")
        by_chance = sum(
            comb(known, count) * _FALSE_ALARMS**count * (1 - _FALSE_ALARMS) ** (known - count)
            for count in range(low, known + 1)
        )
        places = ", ".join(str(place + 1) for place, label in enumerate(labels) if label == "low")
        told = f"{low} of the agent's {known} labelled turns are low" + (f": {places}" if low else "")
        verdict = "pass" if known and not low else "fail" if low and by_chance <= _UNLIKELY else "maybe"
        return JudgmentResult(verdict=verdict, reasoning=told, instructions=f"{self._scorer}: is each turn good?")


def _to_openai(items: Iterable[Any]) -> list[dict[str, str]]:
    """What was said, of a context's items."""
    said = [item for item in items if getattr(item, "type", None) == "message" and item.role in _ROLES]
    return [{"role": item.role, "content": item.text_content} for item in said if item.text_content]


def _text_of(chunks: list[Any]) -> str | None:
    """The words of a reply; None while it calls tools."""
    parts = [chunk if isinstance(chunk, str) else getattr(chunk, "delta", None) for chunk in chunks]
    if any(getattr(part, "tool_calls", None) for part in parts):
        return None
    return "".join(part if isinstance(part, str) else getattr(part, "content", None) or "" for part in parts)
