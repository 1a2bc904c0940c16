"""What follows a switch of models: open conversations, and everything that belongs to the models."""

import asyncio
from typing import Any

from prometheus_client import REGISTRY
from support.conditions import until
from support.conversations import HeldChannel
from support.fakes import FakeEncoder, FakeScorer, loaded_fake
from support.switching import NO_CACHE, FakeLoader, ShiftedScorer, ask, second_version, switchable
from turnscore_core.deadline import Deadline
from turnscore_service.settings.service import CombinationSettings, Settings
from turnscore_wire import SimilarityRequest


async def test_an_open_conversation_goes_on_with_the_version_of_each_turns_moment() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    async with switchable(loader) as (runtime, switch):
        channel = HeldChannel()
        talking = asyncio.create_task(runtime.conversations.hold(runtime.pipeline, channel, "r-1"))
        for text in ("one", "one two"):
            channel.say("user", "hi")
            channel.say("system", text)
            await channel.hear()
            scored = (await channel.hear()).scored
            assert scored is not None
            if text == "one":
                assert scored.scores["fake"].model == "fake:1.0.0"
                await switch.serve(reference)
        assert scored.scores["fake"].model == "fake:1.1.0"
        dialogue = scored.dialogue["fake"]
        assert (dialogue.turns, dialogue.min, dialogue.max) == (2, 0.01, 0.52)  # every turn as it was answered
        channel.inbox.put_nowait(None)
        await talking


async def test_a_conversations_option_that_the_next_version_does_not_know_fails_its_turns_by_name() -> None:
    class WithoutOptions(ShiftedScorer):
        def read_options(self, options: Any) -> object:
            return super().read_options({"unknown": 1} if options else {})

    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(loaded_fake(WithoutOptions(), "fake", "2.0.0"))
    async with switchable(loader) as (runtime, switch):
        channel = HeldChannel()
        talking = asyncio.create_task(runtime.conversations.hold(runtime.pipeline, channel, "r-1"))
        channel.tell({"open": {"options": {"fake": {"known": 1}}}})
        await channel.hear()
        await switch.serve(reference)
        channel.say("system", "one")
        scored = (await channel.hear()).scored
        assert scored is not None
        assert scored.errors["fake"].field == "open.options.fake.unknown"
        channel.inbox.put_nowait(None)
        await talking


async def test_everything_that_belongs_to_the_models_follows() -> None:
    parts = {"both": CombinationSettings(weights={"fake": 1.0}, threshold=0.3)}
    stand_in = FakeScorer()
    stand_in.stand_in = True
    loader = FakeLoader(
        loaded_fake(FakeScorer()), loaded_fake(stand_in, "aside"), loaded_fake(FakeEncoder(), "encoder")
    )
    meant = ShiftedScorer()
    meant.threshold = 0.6
    loader.named |= {
        "fake": loaded_fake(meant, "fake", "1.1.0"),
        "aside": loaded_fake(FakeScorer(), "aside", "1.1.0"),
        "encoder": loaded_fake(FakeEncoder(), "encoder", "1.1.0"),
    }
    later, loader.named = loader.named, {name: loader.known[f"{name}:1.0.0"] for name in loader.named}
    async with switchable(loader, Settings(combinations=parts)) as (runtime, switch):
        assert list(runtime.pipeline().model_set.defaults) == ["fake"]
        runtime.answered.note(b"a body", is_answered=True)
        loader.named = later
        for each in later.values():
            loader.add(each)
        await switch.reload()
        reply = await ask(runtime, scorers=["both", "fake", "aside"])
        models = {each.scorer: each for each in runtime.models("r").models}
        similar = await runtime.pipeline().similarity(
            SimilarityRequest(texts=["a", "b c"]), "r", Deadline.after_ms(60_000)
        )
        assert list(runtime.pipeline().model_set.defaults) == ["fake", "aside"]  # it only stood in before
        assert b"a body" not in runtime.answered  # its score is not in the cache any more
    assert {name: score.model for name, score in reply.scores.items()} == {
        "both": "fake:1.1.0", "fake": "fake:1.1.0", "aside": "aside:1.1.0",
    }  # fmt: skip
    assert reply.scores["fake"].label == "low"
    assert similar.model == "encoder:1.1.0"
    assert {name: each.model for name, each in models.items()} == {
        "fake": "fake:1.1.0", "aside": "aside:1.1.0", "encoder": "encoder:1.1.0", "both": "fake:1.1.0",
    }  # fmt: skip


async def test_room_that_the_old_version_holds_counts_and_the_gauges_are_the_new_ones() -> None:
    old = FakeScorer()
    loader = FakeLoader(loaded_fake(old))
    reference = loader.add(second_version())
    async with switchable(loader, NO_CACHE) as (runtime, switch):
        old.gate.clear()
        begun = [asyncio.create_task(ask(runtime, f"turn {number}")) for number in range(3)]
        await asyncio.to_thread(old.started.wait, 60)
        await until(lambda: REGISTRY.get_sample_value("turnscore_running_batches", {"scorer": "fake"}) == 1)
        pipeline = runtime.pipeline()
        switching = asyncio.create_task(switch.serve(reference))
        await until(lambda: runtime.pipeline() is not pipeline)
        assert REGISTRY.get_sample_value("turnscore_items_in_flight", {"scorer": "fake"}) == 3
        assert REGISTRY.get_sample_value("turnscore_running_batches", {"scorer": "fake"}) == 0
        assert runtime.pipeline().shedding is pipeline.shedding
        old.gate.set()
        await asyncio.gather(*begun, switching)
        assert REGISTRY.get_sample_value("turnscore_items_in_flight", {"scorer": "fake"}) == 0
