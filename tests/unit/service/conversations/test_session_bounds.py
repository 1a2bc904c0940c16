"""How a live conversation is bounded, how it ends, and what a cut leaves: nothing."""

import asyncio

import pytest
from support.conditions import until
from support.fakes import FakeScorer
from support.transports import bounded, talking
from turnscore_core.errors import CallerLeftError, DeadlineExceededError
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


async def test_a_caller_that_takes_no_answers_is_not_read_and_at_last_treated_as_gone():
    async with talking(bounded(max_pending=2, idle_seconds=0.2)) as (channel, holding, _):
        channel.room.clear()
        for _ in range(5):
            channel.say("system", "a")
        with pytest.raises(CallerLeftError):
            await asyncio.wait_for(holding, 30)
        assert channel.read == 2


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
