"""Versions are loaded and switched: what takes which place, what is refused, and what follows."""

import asyncio
import weakref

import pytest
from support.conditions import until
from support.fakes import FakeEncoder, FakeScorer, loaded_fake
from support.transports import HeldChannel
from support.versions import NO_CACHE, FakeLoader, ShiftedScorer, ask, counted, second_version, switchable
from turnscore_core.errors import FailedScoringError
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.scoring import Deadline
from turnscore_models.manifest import BundleError, BundleNotFoundError, MismatchedGraphError
from turnscore_service import metrics
from turnscore_service.lifecycle.loading import load_versions
from turnscore_service.lifecycle.model_switch import SwitchRefusedError
from turnscore_service.settings.group import VersionShare
from turnscore_service.settings.service import CombinationSettings, RuntimeSettings, Settings
from turnscore_wire import DialogueRequest, RankRequest, SimilarityRequest, Turn

SERVED = {
    "fake": loaded_fake(FakeScorer()),
    "other": loaded_fake(FakeScorer(), "other"),
    "encoder": loaded_fake(FakeEncoder(), "encoder"),
}


class Loader:
    """Loads fakes; notes what it loaded, in which concurrent batches."""

    def __init__(self):
        self.loaded = []

    def load_candidate(self, bundle, like, *, concurrency=None):
        if bundle.manifest.version == "6.6.6":
            raise MismatchedGraphError("its graph gives self-test turn 0 another value")
        if bundle.manifest.version == "7.7.7":
            raise DeviceError("cuda:0 has no room for both")
        self.loaded.append((bundle.manifest.reference, concurrency))
        return loaded_fake(FakeScorer(), bundle.manifest.kind, bundle.manifest.version)


def find(reference):
    name, _, version = reference.partition(":")
    if version == "9.9.9":
        raise BundleNotFoundError(f"no bundle {reference}; known: {name}:1.0.0")
    return loaded_fake(FakeScorer(), name, version).bundle


def load(loader=None, **settings):
    shares = {
        setting: tuple(VersionShare(bundle=each, share=0.25) for each in named) for setting, named in settings.items()
    }
    return load_versions(Settings(**shares), SERVED, loader or Loader(), find)


def test_versions_work_under_names_of_their_own_and_a_shadow_one_batch_at_a_time():
    loader = Loader()
    found = load(loader, shadow=["fake:1.1.0", "other:2.0.0"], split=["fake:1.2.0"])
    assert [(each.loaded.kind, each.loaded.name, each.share) for each in found.shadows] == [
        ("fake", "fake:1.1.0", 0.25),
        ("other", "other:2.0.0", 0.25),
    ]
    assert [each.loaded.name for each in found.splits] == ["fake:1.2.0"]
    one = Concurrency(batches=1, threads=1)
    assert loader.loaded == [("fake:1.1.0", one), ("other:2.0.0", one), ("fake:1.2.0", None)]


NO_CANDIDATES = [
    (["fake:9.9.9"], "no bundle fake:9.9.9; known: fake:1.0.0"),
    (
        ["fake:1.0.0"],
        "fake:1.0.0 is what is served; name another version, or pin the one to serve: TURNSCORE_MODELS=fake:VERSION",
    ),
    (["mood:1.0.0"], "mood:1.0.0 is the scorer mood, of which no version is served"),
    (["encoder:2.0.0"], "encoder:2.0.0 is the scorer encoder, which scores no turns of a conversation"),
    (["fake:1.1.0", "fake:1.2.0"], "fake:1.2.0 is the second version of fake; name one of each scorer"),
]


@pytest.mark.parametrize("setting", ["shadow", "split"])
@pytest.mark.parametrize(("named", "sentence"), NO_CANDIDATES)
def test_what_cannot_be_a_candidate_of_a_served_scorer_is_refused_before_anything_is_loaded(setting, named, sentence):
    loader = Loader()
    with pytest.raises(BundleError) as refused:
        load(loader, **{setting: named})
    assert str(refused.value) == f"TURNSCORE_{setting.upper()}: {sentence}"
    assert loader.loaded == []


def test_a_version_that_fails_its_proof_is_refused():
    with pytest.raises(BundleError, match=r"^TURNSCORE_SPLIT: its graph gives self-test turn 0 another value"):
        load(split=["fake:6.6.6"])


async def test_a_request_that_has_begun_stays_with_its_version_and_others_do_not_wait_for_it():
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


@pytest.mark.usefixtures("_no_cyclic_collection")
async def test_the_replaced_model_is_freed_without_a_garbage_collection():
    class Backend:
        """Stands in for a session."""

    old = FakeScorer()
    old.backend = Backend()
    freed = weakref.ref(old.backend)
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


async def test_a_version_whose_stage_is_dead_can_be_switched_away_from():
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


def test_a_process_tells_no_more_models_apart_than_it_may(monkeypatch):
    monkeypatch.setattr(metrics, "_models", set())
    labels = [metrics.model_label(f"fake:1.0.{number}") for number in range(metrics.MOST_MODELS + 2)]
    assert labels[-3:] == [f"fake:1.0.{metrics.MOST_MODELS - 1}", "other", "other"]
    assert metrics.model_label("fake:1.0.0") == "fake:1.0.0"


async def test_a_version_that_a_key_names_is_not_switched_away():
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    keys = {"team": {"sha256": "0" * 64, "models": ["fake:1.0.0"]}}
    async with switchable(loader, Settings.model_validate({"auth": {"keys": keys}})) as (runtime, switch):
        with pytest.raises(SwitchRefusedError, match=r"API key team\.models: fake:1\.0\.0 is not among fake:1\.1\.0"):
            await switch.serve(reference)
        assert runtime.pipeline().model_set.scorers["fake"].model == "fake:1.0.0"
        assert runtime.health.is_ready


REFUSED = [
    ("fake:9.9.9", "no bundle fake:9.9.9"),
    ("other:1.0.0", "no bundle named 'other' is served; served: fake; add it to TURNSCORE_MODELS and restart"),
    ("fake:1.2.0", "self-test turn 0"),
]


@pytest.mark.parametrize(("reference", "reason"), REFUSED)
async def test_what_is_refused_changes_nothing_and_is_counted(reference, reason):
    loader = FakeLoader(loaded_fake(FakeScorer()))
    loader.add(second_version(version="1.2.0"), MismatchedGraphError("graph.onnx gives self-test turn 0 the value 0.9"))
    loader.add(second_version("other"))
    async with switchable(loader) as (runtime, switch):
        pipeline, before = runtime.pipeline(), counted("refused")
        with pytest.raises(SwitchRefusedError, match=reason):
            await switch.serve(reference)
        assert runtime.pipeline() is pipeline
        assert counted("refused") == before + 1
        assert (await ask(runtime)).scores["fake"].model == "fake:1.0.0"
        assert runtime.health.is_ready


class ProvingLoader(FakeLoader):
    """Versions are checked before they are loaded; those of `broken` fail it, and with `hangs` it has no end."""

    hangs = False
    hanging = 0
    given_up = 0

    async def preflight(self, bundle, like):
        if error := self.broken.get(bundle.manifest.reference):
            raise type(error)(*error.args)
        if self.hangs:
            self.hanging += 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        return bundle.digest

    def load_candidate(self, *given, checked=None, **how):
        assert checked == given[0].digest
        return super().load_candidate(*given, checked=checked, **how)


async def test_nothing_is_loaded_before_everything_is_proved(monkeypatch):
    loader = ProvingLoader(loaded_fake(FakeScorer(), "fake"), loaded_fake(FakeScorer(), "other"))
    async with switchable(loader) as (runtime, switch):
        loader.named = {"fake": second_version("fake"), "other": second_version("other")}
        for each in loader.named.values():
            loader.add(each)
        loader.broken["other:1.1.0"] = BundleError("the proof of other:1.1.0 was ended by SIGSEGV")
        with monkeypatch.context() as forbidding:
            forbidding.setattr(loader, "load_candidate", lambda *_, **__: pytest.fail("it takes memory for nothing"))
            with pytest.raises(SwitchRefusedError, match="ended by SIGSEGV"):
                await switch.reload()
        loader.broken.clear()
        assert set((await switch.reload()).replaced) == {"fake:1.1.0", "other:1.1.0"}
        assert {each.model for each in (await ask(runtime)).scores.values()} == {"fake:1.1.0", "other:1.1.0"}


async def test_a_service_that_stops_gives_up_the_proof_under_way():
    loader = ProvingLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    async with switchable(loader) as (runtime, switch):
        loader.hangs = True
        switching = asyncio.create_task(switch.serve(reference))
        await until(lambda: loader.hanging)
        await runtime.stop()
        with pytest.raises(SwitchRefusedError, match="the service is shutting down"):
            await switching
    assert loader.given_up == 1


async def test_a_reload_cannot_change_which_scorers_there_are():
    loader = FakeLoader(loaded_fake(FakeScorer()))
    async with switchable(loader) as (_, switch):
        loader.named["other"] = second_version("other")
        with pytest.raises(SwitchRefusedError, match="scorers fake, other, but fake are served: restart"):
            await switch.reload()


async def test_models_that_were_refused_at_the_start_can_be_loaded_by_a_reload():
    class MendedLoader(FakeLoader):
        is_broken = True

        def load_all(self):
            if self.is_broken:
                raise BundleError("the folder is empty")
            return super().load_all()

    loader = MendedLoader(loaded_fake(FakeScorer()))
    async with switchable(loader) as (runtime, switch):
        with pytest.raises(SwitchRefusedError, match="the service is refused: the folder is empty"):
            await switch.serve("fake:1.0.0")
        loader.is_broken = False
        await runtime.reload()
        await runtime.wait_until_loaded()
        assert (await ask(runtime)).scores["fake"].model == "fake:1.0.0"


async def test_everything_that_belongs_to_the_models_follows():
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
