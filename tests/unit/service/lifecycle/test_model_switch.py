"""A switch of models: nobody fails or waits, and what was replaced is freed."""

import asyncio
import gc
import weakref
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from support.conditions import until
from support.conversations import HeldChannel
from support.fakes import FakeScorer, loaded_fake
from support.switching import NO_CACHE, FakeLoader, ShiftedScorer, ask, second_version, switchable
from turnscore_core.deadline import Deadline
from turnscore_core.errors import FailedScoringError
from turnscore_models import BundleError
from turnscore_service import metrics
from turnscore_service.lifecycle.model_switch import SwitchRefusedError
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersion, CandidateVersions
from turnscore_service.settings.service import RuntimeSettings
from turnscore_wire import DialogueRequest, RankRequest, ScoreReply, ScoreRequest, Turn


async def test_the_next_request_is_answered_by_the_version_that_was_switched_to() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    async with switchable(loader) as (runtime, switch):
        before = (await ask(runtime)).scores["fake"]
        done = await switch.serve(reference)
        after = (await ask(runtime)).scores["fake"]
    assert (before.model, before.value) == ("fake:1.0.0", 0.02)
    assert (after.model, after.value) == ("fake:1.1.0", 0.52)
    assert not after.cached  # the other version's score of the same turn is another
    assert done.replaced == {"fake:1.1.0": "fake:1.0.0"}
    assert done.memory is not None
    assert min(done.memory.before_bytes, done.memory.between_bytes, done.memory.after_bytes) > 0
    assert "a restart serves what TURNSCORE_MODELS names, which is not fake:1.1.0" in done.note


async def test_a_request_that_has_begun_stays_with_its_version_and_others_do_not_wait_for_it() -> None:
    old = FakeScorer()
    loader = FakeLoader(loaded_fake(old))
    reference = loader.add(second_version())
    turns = [Turn(speaker="user", text="hi"), Turn(speaker="system", text="one"), Turn(speaker="system", text="a b")]
    async with switchable(loader, NO_CACHE) as (runtime, switch):
        old.gate.clear()
        pipeline, deadline = runtime.pipeline(), Deadline.after_ms(60_000)
        begun = [
            asyncio.create_task(pipeline.score_dialogue(DialogueRequest(turns=turns), "r", deadline)),
            asyncio.create_task(pipeline.rank(RankRequest(context=turns, candidates=["x", "y z"]), "r", deadline)),
        ]
        await asyncio.to_thread(old.started.wait, 60)
        switching = asyncio.create_task(switch.serve(reference))
        await until(lambda: runtime.pipeline() is not pipeline)
        assert (await ask(runtime, "c d e")).scores["fake"].model == "fake:1.1.0"
        assert not switching.done()  # the old version's work is not done
        with pytest.raises(SwitchRefusedError, match=r"another switch is under way: the last requests of fake:1\.0\.0"):
            await switch.serve("fake:1.0.0")
        old.gate.set()
        dialogue, ranked = await asyncio.gather(*begun)
        await switching
    assert {each.scores["fake"].model for each in dialogue.turns} == {"fake:1.0.0"}
    assert {each.scores["fake"].model for each in ranked.candidates} == {"fake:1.0.0"}


async def test_a_batch_that_has_not_looked_its_turns_up_yet_is_answered_by_the_version_it_began_with() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    requests = [ScoreRequest(response=f"turn {number}") for number in range(64)]
    async with switchable(loader, NO_CACHE) as (runtime, switch):
        pipeline = runtime.pipeline()
        whole = asyncio.create_task(pipeline.score_batch(requests, "r", Deadline.after_ms(60_000)))
        await asyncio.sleep(0)  # it has begun, and waits for its turn of the loop
        await switch.serve(reference)
        replies = (await whole).results
    assert {reply.scores["fake"].model for reply in replies if isinstance(reply, ScoreReply)} == {"fake:1.0.0"}
    assert len(replies) == 64


async def test_what_is_served_already_is_left_as_it_is() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    async with switchable(loader) as (runtime, switch):
        pipeline = runtime.pipeline()
        assert not (await switch.serve("fake:1.0.0")).replaced
        assert not (await switch.reload()).replaced
        assert runtime.pipeline() is pipeline


@pytest.mark.usefixtures("_no_cyclic_collection")
async def test_the_replaced_model_is_freed_without_a_garbage_collection() -> None:
    class Backend:
        """Stands in for a session."""

    old = FakeScorer()
    old.backend = Backend()  # type: ignore[attr-defined]
    freed = weakref.ref(old.backend)  # type: ignore[attr-defined]
    kept = FakeScorer()
    loader = FakeLoader(loaded_fake(old), loaded_fake(kept, "kept"))
    reference = loader.add(second_version())
    async with switchable(loader) as (runtime, switch):
        held = runtime.pipeline().runtimes["kept"]
        channel = HeldChannel()
        talking = asyncio.create_task(runtime.conversations.hold(runtime.pipeline, channel, "r-1"))
        channel.say("system", "an open conversation holds no model")
        assert (await channel.hear()).scored is not None
        await asyncio.gather(*(ask(runtime, f"turn {number} " * number) for number in range(1, 20)))
        del loader.known["fake:1.0.0"], loader.named["fake"], old
        await switch.serve(reference)
        await until(lambda: freed() is None)  # the old threads take a moment to end
        assert runtime.pipeline().runtimes["kept"] is held
        channel.inbox.put_nowait(None)
        await talking


async def test_many_switches_under_load_fail_nobody_and_leave_one_version_in_memory() -> None:
    versions = [loaded_fake(FakeScorer()), second_version()]
    loader = FakeLoader(*versions[:1])
    loader.add(versions[1])
    loader.add(second_version(version="6.6.6"), BundleError("it is broken"))
    answered: list[str] = []
    is_over = asyncio.Event()

    async def keep_asking(runtime: Runtime, number: int) -> None:
        while not is_over.is_set():
            answered.append((await ask(runtime, f"turn {number} {len(answered)}")).scores["fake"].model)

    async with switchable(loader, NO_CACHE) as (runtime, switch):
        asking = [asyncio.create_task(keep_asking(runtime, number)) for number in range(4)]
        dropped = []
        for number in range(20):
            before = len(answered)
            dropped.append(weakref.ref(runtime.pipeline()))
            await switch.serve(versions[(number + 1) % 2].bundle.manifest.reference)
            with pytest.raises(SwitchRefusedError, match="it is broken"):
                await switch.serve("fake:6.6.6")
            await until(lambda: len(answered) > before)  # noqa: B023
        is_over.set()
        await asyncio.gather(*asking)  # raises what anybody got instead of an answer
        gc.collect()
        assert [number for number, each in enumerate(dropped) if each() is not None] == []
    assert set(answered) == {"fake:1.0.0", "fake:1.1.0"}


async def test_versions_that_shadow_and_split_stay_with_the_next_models() -> None:
    split, shadow = loaded_fake(ShiftedScorer(0.2), "fake", "2.0.0"), loaded_fake(FakeScorer(), "fake", "3.0.0")
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    beside = CandidateVersions(
        shadows=[CandidateVersion(replace(shadow, alias="fake:3.0.0"), 1.0)],
        splits=[CandidateVersion(replace(split, alias="fake:2.0.0"), 0.5)],
    )
    runtime = Runtime(NO_CACHE, load_candidate=lambda *_: beside, loader=loader)
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.switch is not None
    names = [f"conversation-{number}" for number in range(40)]

    async def models() -> dict[str, str]:
        replies = {name: await ask(runtime, "one", conversation=name) for name in names}
        return {name: reply.scores["fake"].model for name, reply in replies.items()}

    before = await models()
    worked = runtime.pipeline().runtimes["fake:2.0.0"]
    await runtime.switch.serve(reference)
    after = await models()
    assert set(before.values()) == {"fake:1.0.0", "fake:2.0.0"}
    assert {name for name in names if before[name] == "fake:2.0.0"} == {
        name for name in names if after[name] == "fake:2.0.0"
    }
    assert set(after.values()) == {"fake:1.1.0", "fake:2.0.0"}
    assert runtime.pipeline().runtimes["fake:2.0.0"] is worked
    compared = {"scorer": "fake", "model": "fake:3.0.0", "served": "fake:1.1.0", "outcome": "compared"}
    await until(lambda: REGISTRY.get_sample_value("turnscore_shadow_turns_total", compared))
    await runtime.stop()


async def test_a_version_whose_stage_is_dead_can_be_switched_away_from() -> None:
    old = FakeScorer()
    loader = FakeLoader(loaded_fake(old))
    reference = loader.add(second_version())
    settings = NO_CACHE.model_copy(update={"runtime": RuntimeSettings(stall_seconds=0.2)})
    async with switchable(loader, settings) as (runtime, switch):
        old.gate.clear()
        [failed] = await asyncio.gather(ask(runtime), return_exceptions=True)
        assert isinstance(failed, FailedScoringError)
        assert not runtime.health.is_ready
        await switch.serve(reference)
        assert runtime.health.is_ready
        assert (await ask(runtime)).scores["fake"].model == "fake:1.1.0"


def test_a_process_tells_no_more_models_apart_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_models", set())
    labels = [metrics.model_label(f"fake:1.0.{number}") for number in range(metrics.MOST_MODELS + 2)]
    assert labels[-3:] == [f"fake:1.0.{metrics.MOST_MODELS - 1}", "other", "other"]
    assert metrics.model_label("fake:1.0.0") == "fake:1.0.0"
