"""Switches that are refused change nothing and leave nothing; reloads serve all that the settings name, or nothing."""

import asyncio
import weakref
from typing import Any

import pytest
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake
from support.switching import FakeLoader, ask, counted, second_version, switchable
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_models import Bundle, BundleError, MismatchedGraphError
from turnscore_service.lifecycle.model_switch import SwitchRefusedError

REFUSED = [
    ("fake:9.9.9", "no bundle fake:9.9.9"),
    ("other:1.0.0", "no bundle of the name 'other' is served; served: fake"),
    ("fake:1.2.0", "self-test turn 0"),
]


@pytest.mark.parametrize(("reference", "reason"), REFUSED)
async def test_what_is_refused_changes_nothing_and_is_counted(reference: str, reason: str) -> None:
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


async def test_an_unforeseen_failure_is_a_refusal_too(caplog: pytest.LogCaptureFixture) -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    loader.broken[reference] = RuntimeError("a library broke")  # type: ignore[assignment]
    async with switchable(loader) as (runtime, switch):
        with pytest.raises(SwitchRefusedError, match="loading failed: RuntimeError"):
            await switch.serve(reference)
        assert (await ask(runtime)).scores["fake"].model == "fake:1.0.0"
    assert "a library broke" in caplog.text


class ProvingLoader(FakeLoader):
    """Versions are proved before they are loaded; those of `broken` fail it, and with `hangs` it has no end."""

    hangs = False
    hanging = 0
    given_up = 0

    async def prove(self, bundle: Bundle, like: LoadedScorer) -> str | None:
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

    def load_candidate(self, *given: Any, proved: str | None = None, **how: Any) -> LoadedScorer:
        assert proved == given[0].digest
        return super().load_candidate(*given, proved=proved, **how)


async def test_nothing_is_loaded_before_everything_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_service_that_stops_gives_up_the_proof_under_way() -> None:
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


async def test_a_reload_serves_all_that_the_settings_name_by_then_or_nothing_of_it() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer(), "fake"), loaded_fake(FakeScorer(), "other"))
    async with switchable(loader) as (runtime, switch):
        loader.named = {"fake": second_version("fake"), "other": second_version("other")}
        for each in loader.named.values():
            loader.add(each)
        loader.broken["other:1.1.0"] = BundleError("other:1.1.0 is broken")
        await runtime.reload()  # which reports what is refused in the log alone
        assert {each.model for each in (await ask(runtime)).scores.values()} == {"fake:1.0.0", "other:1.0.0"}
        loader.broken.clear()
        done = await switch.reload()
        assert set(done.replaced) == {"fake:1.1.0", "other:1.1.0"}
        assert not done.note  # a restart serves the same
        assert {each.model for each in (await ask(runtime)).scores.values()} == {"fake:1.1.0", "other:1.1.0"}


async def test_a_reload_cannot_change_which_scorers_there_are() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    async with switchable(loader) as (_, switch):
        loader.named["other"] = second_version("other")
        with pytest.raises(SwitchRefusedError, match="kinds fake, other, and fake are served: a restart"):
            await switch.reload()


async def test_models_that_were_refused_at_the_start_can_be_loaded_by_a_reload() -> None:
    class MendedLoader(FakeLoader):
        is_broken = True

        def load_all(self) -> Any:
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


async def test_a_draining_process_switches_nothing() -> None:
    loader = FakeLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    async with switchable(loader) as (runtime, switch):
        runtime.begin_drain()
        with pytest.raises(SwitchRefusedError, match="draining"):
            await switch.serve(reference)
        assert (await ask(runtime)).scores["fake"].model == "fake:1.0.0"


@pytest.mark.usefixtures("_no_cyclic_collection")
async def test_a_refused_version_is_freed_without_a_garbage_collection() -> None:
    class Backend:
        """Stands in for the session of a version that is loaded, and fails its proof."""

    loaded: list[weakref.ref[Backend]] = []

    class KeepingLoader(FakeLoader):
        def load_candidate(self, *_: Any, **__: Any) -> Any:
            backend = Backend()
            loaded.append(weakref.ref(backend))
            raise MismatchedGraphError(f"{type(backend).__name__} scores otherwise")

    loader = KeepingLoader(loaded_fake(FakeScorer()))
    reference = loader.add(second_version())
    async with switchable(loader) as (_, switch):
        with pytest.raises(SwitchRefusedError, match="Backend scores otherwise"):
            await switch.serve(reference)
        await until(lambda: loaded[0]() is None)
