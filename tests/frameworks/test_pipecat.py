"""Pipecat, the real package: an assistant aggregator in a pipeline, fed the frames of a fake model."""

from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, Patience, Service

pytest.importorskip("pipecat", reason="Pipecat is not installed: make integrations")

from pipecat.frames.frames import InterruptionFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.tests.utils import SleepFrame, run_test
from turnscore_client.integrations.pipecat_listener import listen


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
