"""Pipecat, the real package: processors in a pipeline, fed the frames of a fake model."""

import asyncio
from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

pytest.importorskip("pipecat", reason="Pipecat is not installed: make integrations")

from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.tests.utils import SleepFrame, run_test
from turnscore_client.integrations import QualityGate
from turnscore_client.integrations.pipecat_listener import GateProcessor, listen


def assistant() -> Any:
    context = LLMContext([{"role": "system", "content": "you are a detective"}, {"role": "user", "content": ASKED}])
    return LLMContextAggregatorPair(context).assistant()


async def say(aggregator: Any, *frames: Any) -> None:
    await run_test(aggregator, frames_to_send=frames)


ANSWER = (LLMFullResponseStartFrame(), LLMTextFrame(ANSWERED), LLMFullResponseEndFrame(), SleepFrame())


async def test_what_the_bot_said_is_scored_in_its_context(service: Service):
    aggregator = assistant()
    listen(aggregator, session_id="room 7", **service.options())
    await say(aggregator, *ANSWER)
    await until(lambda: service.told, 30)
    [body] = service.asked
    assert (body["context"], body["response"]) == ([{"speaker": "user", "text": ASKED}], ANSWERED)
    assert service.told[0].tag.session_id == "room 7"


async def test_what_the_user_interrupted_is_not_scored(service: Service):
    aggregator = assistant()
    watch = listen(aggregator, **service.options())
    ended: list[Any] = []

    async def note(_: Any, message: Any) -> None:
        ended.append((message.content, message.interrupted))

    aggregator.add_event_handler("on_assistant_turn_stopped", note)
    await say(aggregator, LLMFullResponseStartFrame(), LLMTextFrame(ANSWERED), SleepFrame(), InterruptionFrame())
    assert ended == [(ANSWERED, True)]
    assert watch.wait_until_idle(30)
    assert service.asked == []


async def test_an_unwell_service_costs_the_pipeline_nothing(unwell: Service, patience: Patience):
    aggregator = assistant()
    watch = listen(aggregator, **unwell.options())
    with patience:
        await say(aggregator, *ANSWER)
    assert patience.seconds < 4
    assert aggregator.context.get_messages()[-1]["content"] == ANSWERED
    watch.close(0)


class FakeModel(LLMService):
    """Says the same, out of the pipeline."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer, self.asked = answer, []

    async def run_inference(self, context: Any, **_: Any) -> str | None:
        self.asked.append(context)
        return self.answer


def words(*texts: str) -> list[Frame]:
    first, *others = " ".join(texts).split(" ")
    return [LLMTextFrame(first), *[LLMTextFrame(f" {other}") for other in others]]


async def spoken(gate: QualityGate, *frames: Frame, llm: Any = None) -> list[str]:
    """The texts that the speech gets, with the marks of where a reply begins and ends."""
    context = LLMContext([{"role": "system", "content": "you are a detective"}, {"role": "user", "content": ASKED}])
    down, _ = await run_test(GateProcessor(gate, context, llm, session_id="room 7"), frames_to_send=frames)
    gate.close()
    marks = {LLMFullResponseStartFrame: "<", LLMFullResponseEndFrame: ">"}
    return [
        frame.text if isinstance(frame, LLMTextFrame) else marks[type(frame)]
        for frame in down
        if type(frame) in {*marks, LLMTextFrame}
    ]


LOW = [LLMFullResponseStartFrame(), *words(BAD), LLMFullResponseEndFrame()]


@pytest.mark.parametrize(
    ("given", "weak", "said"),
    [
        ({"on_low": "ask_again"}, GOOD, [GOOD]),
        ({"on_low": "ask_again"}, BAD, [BAD]),
        ({"on_low": "fallback_model"}, BAD, [GOOD]),
        ({"on_low": "hand_over", "hand_over": "one moment"}, GOOD, ["one moment"]),
        ({"on_low": "ask_again", "min_quality": 0.05}, GOOD, ["mumble", " mumble"]),
    ],
)
async def test_a_low_reply_is_replaced_before_it_is_spoken(service: Service, given, weak, said):
    gate = QualityGate(url=service.url, fallback_model=FakeModel(GOOD), deadline_seconds=30, **given)
    assert await spoken(gate, *LOW, llm=FakeModel(weak)) == ["<", *said, ">"]
    assert service.asked[0]["context"] == [{"speaker": "user", "text": ASKED}]


async def test_replies_in_turn_are_judged_each(service: Service):
    gate = QualityGate("ask_again", url=service.url, deadline_seconds=30)
    fine = [LLMFullResponseStartFrame(), *words(ANSWERED), LLMFullResponseEndFrame()]
    said = await spoken(gate, *LOW, *fine, llm=FakeModel(GOOD))
    assert "".join(said) == f"<{GOOD}><{ANSWERED}>"
    assert (gate.low, gate.passed) == (1, 1)


async def test_what_is_said_before_a_call_of_tools_passes(service: Service):
    gate = QualityGate("ask_again", url=service.url, deadline_seconds=30)
    called = FunctionCallsStartedFrame(function_calls=[])
    frames = [LLMFullResponseStartFrame(), *words(BAD), SleepFrame(), called, *words(BAD), LLMFullResponseEndFrame()]
    assert "".join(await spoken(gate, *frames, llm=FakeModel(GOOD))) == f"<{BAD}{BAD}>"
    assert service.asked == []


async def test_what_has_no_end_when_the_next_begins_or_the_pipeline_ends_is_spoken(service: Service):
    gate = QualityGate("ask_again", url=service.url, deadline_seconds=30)
    frames = [LLMFullResponseStartFrame(), *words(ANSWERED), *LOW[:-1]]
    assert "".join(await spoken(gate, *frames, llm=FakeModel(GOOD))) == f"<{ANSWERED}<{BAD}"


async def test_what_the_user_interrupts_is_not_spoken(service: Service):
    gate = QualityGate("ask_again", url=service.url, deadline_seconds=30)
    frames = [LLMFullResponseStartFrame(), *words(BAD), SleepFrame(), InterruptionFrame(), SleepFrame()]
    assert await spoken(gate, *frames, llm=FakeModel(GOOD)) == ["<"]
    assert service.asked == []


class Waiting(FrameProcessor):
    """Ends the reply when its first word has been spoken, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.has_spoken = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: Any) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMFullResponseEndFrame):
            await asyncio.wait_for(self.has_spoken.wait(), 30)
        await self.push_frame(frame, direction)


class Speech(FrameProcessor):
    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self.waiting = waiting

    async def process_frame(self, frame: Frame, direction: Any) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.waiting.has_spoken.set()
        await self.push_frame(frame, direction)


async def test_a_reply_that_is_longer_in_coming_than_the_deadline_is_spoken_as_it_comes(service: Service):
    gate, waiting = QualityGate("ask_again", url=service.url, deadline_seconds=0.2), Waiting()
    gating = GateProcessor(gate, LLMContext([{"role": "user", "content": ASKED}]), FakeModel(GOOD))
    down, _ = await run_test(Pipeline([waiting, gating, Speech(waiting)]), frames_to_send=LOW)
    assert "".join(frame.text for frame in down if isinstance(frame, LLMTextFrame)) == BAD
    assert (waiting.has_spoken.is_set(), service.asked) == (True, [])
    gate.close()


def test_pipecat_asks_no_model_by_its_name(service: Service):
    gate = QualityGate("fallback_model", fallback_model="strong", url=service.url)
    with pytest.raises(ValueError, match="give a function"):
        GateProcessor(gate, LLMContext())
    gate.close()
