"""How a live conversation is bounded, how it ends, and what a cut leaves: nothing."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from support.conditions import until
from support.conversations import HeldChannel, bounded, talking
from support.fakes import FakeScorer
from turnscore_core.errors import (
    CallerLeftError,
    DeadlineExceededError,
    NotReadyError,
    OverloadedError,
    TooLargeError,
)
from turnscore_service.settings.service import AdmissionSettings, Settings

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_a_turn_without_room_is_told_and_the_next_one_is_scored():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(Settings(admission=AdmissionSettings(max_items=1)), fake=scorer) as (channel, _, _):
        channel.say("system", "a")
        await until(scorer.started.is_set)
        channel.say("system", "b")
        await until(lambda: channel.read == 2)
        scorer.gate.set()
        first, second = await channel.hear(), await channel.hear()
        channel.say("system", "c")
        third = await channel.hear()
    assert first.scored.scores
    assert second.scored.errors["fake"].code == "overloaded"
    assert second.scored.errors["fake"].retry_after_ms
    assert (third.scored.index, list(third.scored.scores)) == (2, ["fake"])


async def test_no_more_is_read_than_may_be_unanswered():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(bounded(max_pending=2), fake=scorer) as (channel, _, _):
        for _ in range(5):
            channel.say("system", "a")
        await until(scorer.started.is_set)
        await until(lambda: channel.read == 2)
        for _ in range(100):
            await asyncio.sleep(0)
        assert channel.read == 2
        scorer.gate.set()
        assert [(await channel.hear()).scored.index for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_caller_that_takes_no_answers_is_not_read_and_at_last_treated_as_gone():
    async with talking(bounded(max_pending=2, idle_seconds=0.2)) as (channel, holding, _):
        channel.room.clear()
        for _ in range(5):
            channel.say("system", "a")
        with pytest.raises(CallerLeftError):
            await asyncio.wait_for(holding, 30)
        assert channel.read == 2


async def test_a_conversation_in_which_nothing_is_said_ends():
    async with talking(bounded(idle_seconds=0.05)) as (channel, holding, _):
        channel.say("user", "q")
        await channel.hear()
        with pytest.raises(DeadlineExceededError, match=r"0\.05 s"):
            await asyncio.wait_for(holding, 30)


async def test_time_spent_on_scoring_is_not_idle_time():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(bounded(idle_seconds=0.5), fake=scorer) as (channel, holding, _):
        channel.say("system", "a")
        await asyncio.sleep(1.0)  # twice as long as it may be idle
        assert not holding.done()
        scorer.gate.set()
        assert (await channel.hear()).scored.scores
        channel.say("user", "still there")
        assert (await channel.hear()).ack
        with pytest.raises(DeadlineExceededError):
            await asyncio.wait_for(holding, 30)


async def test_more_bytes_than_a_conversation_takes_end_it_after_the_answers_due():
    async with talking(bounded(max_bytes=250)) as (channel, holding, _):
        for _ in range(3):
            channel.say("system", "a")
        with pytest.raises(TooLargeError):
            await holding
        assert [(await channel.hear()).scored.index for _ in range(2)] == [0, 1]
        assert channel.replies.empty()


@pytest.mark.parametrize("way", ["leaves", "is cancelled"])
async def test_a_conversation_cut_in_the_middle_leaves_nothing_behind(way: str):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(fake=scorer) as (channel, holding, _):
        for _ in range(3):
            channel.say("system", "a")
        await until(scorer.started.is_set)
        await until(lambda: channel.read == 3)
        if way == "leaves":
            channel.inbox.put_nowait(CallerLeftError())
        else:
            holding.cancel()
        with pytest.raises((CallerLeftError, asyncio.CancelledError)):
            await asyncio.wait_for(holding, 60)  # the scorer is held for longer: nobody waits for it
        scorer.gate.set()
        assert channel.replies.empty()


async def test_a_caller_that_has_said_everything_gets_the_answers_due():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with talking(fake=scorer) as (channel, holding, _):
        channel.say("system", "a")
        channel.inbox.put_nowait(None)
        await until(scorer.started.is_set)
        scorer.gate.set()
        await asyncio.wait_for(holding, 30)
        assert (await channel.hear()).scored.scores


async def test_draining_is_told_and_turns_are_still_taken_until_the_end():
    scorer = FakeScorer()
    async with talking(Settings(drain_seconds=7), fake=scorer) as (channel, holding, runtime):
        channel.say("user", "q")
        assert (await channel.hear()).ack
        runtime.begin_drain()
        assert (await channel.hear()).draining.ends_in_ms == 7000
        scorer.gate.clear()
        channel.say("system", "a")
        await until(scorer.started.is_set)
        ending = asyncio.create_task(runtime.end_conversations())
        await asyncio.sleep(0)  # one step of the loop: the task has begun
        channel.say("system", "too late")
        with pytest.raises(NotReadyError):
            runtime.conversations.require_room()
        scorer.gate.set()
        with pytest.raises(NotReadyError):
            await asyncio.wait_for(holding, 30)
        await ending
        assert (await channel.hear()).scored.scores
        assert channel.replies.empty()


async def test_there_are_no_more_conversations_than_may_be_open():
    async with talking(bounded(max_open=1)) as (channel, _, runtime):
        channel.say("user", "q")
        await channel.hear()
        with pytest.raises(OverloadedError) as refused:
            await runtime.conversations.hold(runtime.pipeline, HeldChannel(), "r-2")
        assert refused.value.retry_after_ms
        assert REGISTRY.get_sample_value("turnscore_open_conversations") == 1
