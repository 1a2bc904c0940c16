"""Models that a test has switched: fakes of several versions, in the place of bundles in a store."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import REGISTRY
from turnscore_core.deadline import Deadline
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_models import Bundle, BundleError, BundleNotFoundError
from turnscore_service.lifecycle.model_switch import ModelSwitch
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.service import Settings
from turnscore_wire import ScoreReply, ScoreRequest

from support.fakes import FakeScorer, loaded_fake

NO_CACHE = Settings(cache=CacheSettings(local_max_bytes=0))


async def ask(runtime: Runtime, text: str = "one two", **fields: Any) -> ScoreReply:
    """The reply to a request of that response."""
    return await runtime.pipeline().score(ScoreRequest(response=text, **fields), "r", Deadline.after_ms(60_000))


def counted(outcome: str) -> float:
    """Switches that ended so."""
    return REGISTRY.get_sample_value("turnscore_model_switches_total", {"outcome": outcome}) or 0.0


class ShiftedScorer(FakeScorer):
    """As the fake, with another value: two versions that give one turn different scores."""

    def __init__(self, shift: float = 0.5) -> None:
        super().__init__()
        self.shift = shift

    def score(self, batch: Any) -> Any:
        return [raw.__class__(raw.value + self.shift) for raw in super().score(batch)]


class FakeLoader:
    """A Loader of fakes. `named` are what the settings name; others are found by their references."""

    def __init__(self, *named: LoadedScorer) -> None:
        self.named = {each.name: each for each in named}
        self.known: dict[str, LoadedScorer] = {}
        self.broken: dict[str, BundleError] = {}
        """References that fail their proof."""
        for each in named:
            self.add(each)

    def add(self, loaded: LoadedScorer, error: BundleError | None = None) -> str:
        """Puts one more version into the store, which fails its proof with the error; returns its reference."""
        reference = loaded.bundle.manifest.reference
        self.known[reference] = loaded
        if error is not None:
            self.broken[reference] = error
        return reference

    def load_all(self) -> Mapping[str, LoadedScorer]:
        return dict(self.named)

    async def prove(self, bundle: Bundle, like: LoadedScorer) -> str | None:
        return None

    def load_candidate(
        self,
        bundle: Bundle,
        like: LoadedScorer,
        *,
        concurrency: Concurrency | None = None,
        proved: str | None = None,
    ) -> LoadedScorer:
        assert like.name == bundle.manifest.kind
        if error := self.broken.get(bundle.manifest.reference):
            raise type(error)(*error.args)  # a fresh one: a traceback keeps all that its frames held
        return self.known[bundle.manifest.reference]

    def find_bundles(self) -> Mapping[str, Bundle]:
        return {name: each.bundle for name, each in self.named.items()}

    def find_bundle(self, reference: str) -> Bundle:
        if reference not in self.known:
            raise BundleNotFoundError(f"no bundle {reference}")
        return self.known[reference].bundle


def second_version(name: str = "fake", version: str = "1.1.0", shift: float = 0.5) -> LoadedScorer:
    """Another version of a fake, whose values are higher."""
    return loaded_fake(ShiftedScorer(shift), name, version)


@asynccontextmanager
async def switchable(
    loader: FakeLoader, settings: Settings | None = None
) -> AsyncIterator[tuple[Runtime, ModelSwitch]]:
    """A ready runtime on the loader's models, and its switch."""
    runtime = Runtime(settings or Settings(), loader=loader)
    runtime.start()
    await runtime.wait_until_loaded()
    assert runtime.switch is not None
    try:
        yield runtime, runtime.switch
    finally:
        for each in loader.known.values():
            if isinstance(each.scorer, FakeScorer):  # a test that failed must not leave a thread waiting
                each.scorer.gate.set()
                each.scorer.tokenizer_gate.set()
        await runtime.stop()
