"""Criteria and quality in a service: one pass computes all that a turn is asked, whoever lacks what."""

import asyncio
import weakref
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY
from support.bundles import make_criterion_bundle, make_quality_bundle, make_quality_version
from support.conditions import until
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Deadline, Item
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import ScoreReply, ScoreRequest, Turn

ALL = ["quality", "on_topic", "dull"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    quality = make_quality_bundle(folder / "quality")
    on_topic = make_criterion_bundle(folder / "on_topic", quality, "on_topic")
    dull = make_criterion_bundle(folder / "dull", quality, "dull", "engaging", -1.0)
    return {"quality": quality, "on_topic": on_topic, "dull": dull}


@asynccontextmanager
async def serving(models, **settings):
    described = {"models": [str(each.folder) for each in models.values()], "runtime": {"threads": 1}, **settings}
    runtime = Runtime(Settings.model_validate(described))
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.health.state == "ready", runtime.health.reason
    try:
        yield runtime
    finally:
        await runtime.stop()


async def ask(runtime, response, *scorers, **fields):
    request = ScoreRequest(response=response, scorers=list(scorers) or None, **fields)
    return (await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000))).scores


async def test_one_pass_computes_all_and_gives_each_what_it_gives_alone(models, passes):
    def counted():
        labels = {"scorer": "quality", "model": models["quality"].manifest.reference, "outcome": "scored"}
        return REGISTRY.get_sample_value("turnscore_items_total", labels) or 0.0

    async with serving(models) as runtime:
        passes.clear()
        before = counted()
        together = await ask(runtime, "that is great, thanks")
        assert (list(together), passes, counted() - before) == (ALL, [1], 1)
        alone = {name: (await ask(runtime, "that is great, thanks", name, cache="bypass"))[name] for name in ALL}
        assert {name: each.value for name, each in alone.items()} == {
            name: each.value for name, each in together.items()
        }
        assert together["on_topic"].tokens == together["quality"].tokens
        assert together["on_topic"].value == pytest.approx(together["quality"].details["relevant"], abs=1e-6)
        passes.clear()
        assert [each.cached for each in (await ask(runtime, "that is great, thanks")).values()] == [True] * 3
        assert passes == []


async def test_what_is_known_is_not_asked_again(models, passes):
    async with serving(models) as runtime:
        await ask(runtime, "so what", "quality", "dull")
        passes.clear()
        found = await ask(runtime, "so what")
        assert ([each.cached for each in found.values()], passes) == ([True, False, True], [1])
        requests = [ScoreRequest(response=each, scorers=own) for each in ("a b", "c d e") for own in (ALL, ALL[1:])]
        passes.clear()
        reply = await runtime.pipeline().score_batch(requests, "r", Deadline.after_ms(60_000))
        answers = [each for each in reply.results if isinstance(each, ScoreReply)]
        assert [list(each.scores) for each in answers] == [ALL, ALL[1:]] * 2
        assert answers[0].scores["dull"] == answers[1].scores["dull"]
        assert sum(passes) == 2


async def test_turns_of_one_batch_may_ask_other_scorers_of_the_pass(models, passes):
    asked = {"a b c": ALL, "c d e": ["dull", "quality"], "e f g": ["on_topic"], "g h i": ALL[::-1]}
    async with serving(models) as runtime:
        passes.clear()
        requests = [ScoreRequest(response=text, scorers=own) for text, own in asked.items()]
        reply = await runtime.pipeline().score_batch(requests, "r", Deadline.after_ms(60_000))
        assert passes == [4]
        for (text, own), each in zip(asked.items(), reply.results, strict=True):
            assert list(each.scores) == own
            for name in own:
                alone = (await ask(runtime, text, name, cache="bypass"))[name]
                assert each.scores[name].value == pytest.approx(alone.value, abs=1e-6)


async def test_two_callers_at_once_wait_for_one_pass(models, passes):
    async with serving(models) as runtime:
        passes.clear()
        one, other = await asyncio.gather(ask(runtime, "nice one", *ALL[:2]), ask(runtime, "nice one", *ALL[:2]))
        assert (passes, one["on_topic"].value) == ([1], other["on_topic"].value)


async def test_another_version_of_a_criterion_answers_its_share_in_the_same_pass(models, passes):
    quality = models["quality"]
    turned = make_criterion_bundle(quality.folder.parent / "2.0.0", quality, "dull", "engaging", 1.0, "2.0.0")
    async with serving(models, split=f"{turned.folder}=1") as runtime:
        passes.clear()
        found = await ask(runtime, "good fine", conversation="c")
        assert (found["dull"].model, passes) == ("dull:2.0.0", [1])
        usual = await ask(runtime, "good fine")
        assert found["dull"].value == pytest.approx(1 - usual["dull"].value, abs=1e-6)


@pytest.mark.usefixtures("_checked_here")
async def test_a_criterion_outlives_the_switch_of_quality_to_another_encoder(models, passes, tmp_path):
    other = make_quality_version(tmp_path / "other", "2.0.0", marks=2.0)
    async with serving(models) as runtime:
        before = await ask(runtime, "good fine")
        await runtime.switch.serve(str(other.folder) + "/")
        passes.clear()
        after = await ask(runtime, "good fine", cache="bypass")
        assert (after["quality"].model, len(passes)) == ("quality:2.0.0", 2)
        assert [after[name].value for name in ALL[1:]] == [before[name].value for name in ALL[1:]]
        await runtime.switch.serve(str(models["quality"].folder) + "/")
        passes.clear()
        assert (await ask(runtime, "good fine", cache="bypass"))["quality"].value == before["quality"].value
        assert passes == [1]


@pytest.mark.usefixtures("_checked_here")
async def test_a_replaced_criterion_that_computed_for_itself_is_freed(models, tmp_path):
    other = make_quality_version(tmp_path / "quality", "2.0.0", marks=2.0)
    newer = make_criterion_bundle(tmp_path / "on_topic", other, "on_topic", version="2.0.0")
    async with serving(models) as runtime:
        await runtime.switch.serve(str(other.folder) + "/")  # from here on the criteria compute for themselves
        await ask(runtime, "good fine")
        replaced = weakref.ref(runtime.pipeline().runtimes["on_topic"].loaded)
        await runtime.switch.serve(str(newer.folder) + "/")
        assert runtime.pipeline().computed_by("quality") == ["quality", "on_topic"]
        await until(lambda: replaced() is None)


async def test_the_context_of_a_criterion_s_reply_is_read_ahead(models, caplog):
    async with serving(models) as runtime:
        turn = Turn(speaker="user", text="that is great")
        item = Item(turn=TurnToScore([turn], ""), asked={"dull": None}, deadline=Deadline.after_ms(60_000))
        runtime.pipeline().read_ahead(item)
        await until(lambda: not runtime.pipeline().admission.has_work())
        assert "reading ahead failed" not in caplog.text
        assert runtime.pipeline().runtimes["quality"].loaded.scorer.read_ahead(TurnToScore([turn], "")) is None  # kept
