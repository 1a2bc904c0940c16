"""Pipecat: scores the bot's turns, as its assistant aggregator ends each, and gates them before they are spoken."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Unpack
from uuid import uuid4

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds
from turnscore_client._errors import needs_extra
from turnscore_client.integrations._gate import QualityGate

with needs_extra("pipecat", "the Pipecat listener"):
    from pipecat.frames.frames import (
        EndFrame,
        Frame,
        FunctionCallsStartedFrame,
        InterruptionFrame,
        LLMFullResponseEndFrame,
        LLMFullResponseStartFrame,
        LLMTextFrame,
    )
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
    from pipecat.services.llm_service import LLMService


def listen(
    assistant_aggregator: Any, *, session_id: str | None = None, **given: Unpack[BackgroundOptions]
) -> BackgroundScorer:
    """Listens to the assistant's side of an `LLMContextAggregatorPair`; returns the scorer.

    A turn that the user interrupted is not scored: the rest was not heard.
    """
    background = BackgroundScorer(**given)

    async def on_turn(aggregator: Any, message: Any) -> None:
        if not message.interrupted and message.content:
            dialogue = _to_openai(aggregator.context.messages)
            if dialogue and dialogue[-1].get("role") == "assistant":
                dialogue.pop()  # it may hold marks that are not spoken
            dialogue.append({"role": "assistant", "content": message.content})
            background.submit(dialogue, TurnIds(session_id=session_id))

    assistant_aggregator.add_event_handler("on_assistant_turn_stopped", on_turn)
    return background


class GateProcessor(FrameProcessor):
    """`Pipeline([..., llm, GateProcessor(gate, context, llm), tts, ...])`: replies pass a gate before they are spoken.

    The gate's deadline begins with the reply's first word: a reply that is longer in coming is spoken as it comes. Its
    `fallback_model` may be an `LLMService`; it and `llm` are asked out of the pipeline (`run_inference`).
    """

    def __init__(
        self, gate: QualityGate, context: Any, llm: LLMService | None = None, *, session_id: str | None = None
    ) -> None:
        gate.check("Pipecat", LLMService, can_ask=llm is not None)
        super().__init__()
        self._gate, self._context = gate, context
        self._llm: Any = llm
        self._conversation = session_id or uuid4().hex
        self._held: list[Frame] | None = None  # of a reply that has begun; None passes what comes
        self._ends_at = 0.0
        self._timer: asyncio.Task[None] | None = None
        self._in_order = asyncio.Lock()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Holds a reply's texts back until the last one, the deadline, a call of tools, or the pipeline's end."""
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMFullResponseStartFrame):
                await self._push(self._take())  # of a reply that had no end
                self._held = []
            elif isinstance(frame, LLMTextFrame) and self._held is not None:
                self._hold(frame)
                return
            elif isinstance(frame, LLMFullResponseEndFrame):
                await self._push(await self._choose(self._take()))
            elif isinstance(frame, FunctionCallsStartedFrame | EndFrame):
                await self._push(self._take())
            elif isinstance(frame, InterruptionFrame):
                self._take()
            elif isinstance(frame, LLMTextFrame):
                await self._push([frame])
                return
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        """Ends the pipeline's part of it; the gate stays open."""
        self._take()
        await super().cleanup()

    def _hold(self, frame: Frame) -> None:
        assert self._held is not None
        if not self._held:
            self._ends_at = time.monotonic() + self._gate.deadline_seconds
            self._timer = self.create_task(self._release())
        self._held.append(frame)

    def _take(self) -> list[Frame]:
        """What is held back, no longer."""
        held, self._held = self._held, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return held or []

    async def _release(self) -> None:
        await asyncio.sleep(self._ends_at - time.monotonic())
        self._timer = None
        await self._push(self._take())

    async def _push(self, frames: Sequence[Frame]) -> None:
        async with self._in_order:
            for frame in frames:
                await self.push_frame(frame)

    async def _choose(self, held: list[Frame]) -> list[Frame]:
        async def ask(model: Any) -> list[Frame] | None:
            text = await (model or self._llm).run_inference(self._context)
            return None if text is None else [LLMTextFrame(text)]

        return await self._gate.achoose(
            self._context.messages,
            held,
            ask=ask,
            text_of=lambda frames: "".join(frame.text for frame in frames),
            say=lambda text: [LLMTextFrame(text)],
            convert=_to_openai,
            conversation=self._conversation,
            seconds=self._ends_at - time.monotonic(),
        )


def _to_openai(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Those in OpenAI's form: others are one service's own."""
    return [message for message in messages if isinstance(message, dict)]
