"""Switched, shadowed and split versions of models in tests."""

from contextlib import asynccontextmanager
from dataclasses import replace

from turnscore_core.engine import Dialogue, Engine
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_core.scoring import Deadline, Item, Outcome
from turnscore_models.manifest import BundleNotFoundError
from turnscore_service.scheduling.executor import ExecutorWatch
from turnscore_service.scheduling.shadow import Shadows
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.service import Settings
from turnscore_wire import Score, ScoreRequest, TokenCount, Turn

from support.fakes import FakeScorer, Since, candidate_version, loaded_fake, sample
from support.transports import let_go, ready_runtime

NO_CACHE = Settings(cache=CacheSettings(local_max_bytes=0))


async def ask(runtime, text="one two", **fields):
    """The reply to a request of that response."""
    return await runtime.pipeline().score(ScoreRequest(response=text, **fields), "r", Deadline.after_ms(60_000))


def counted(outcome):
    """Switches that ended so."""
    return sample("model_switches_total", outcome=outcome)


class ShiftedScorer(FakeScorer):
    """As the fake, with another value: two versions that give one turn different scores."""

    def __init__(self, shift=0.5):
        super().__init__()
        self.shift = shift

    def score(self, batch):
        return [raw.__class__(raw.value + self.shift) for raw in super().score(batch)]


class FakeLoader:
    """A loader of fakes. `named` are what the settings name; others are found by their references."""

    kept = VectorStore(0)

    def __init__(self, *named):
        self.named = {each.name: each for each in named}
        self.known = {}
        self.broken = {}  # references that fail their proof
        for each in named:
            self.add(each)

    def add(self, loaded, error=None):
        """Puts one more version into the store, which fails its proof with the error; returns its reference."""
        reference = loaded.bundle.manifest.reference
        self.known[reference] = loaded
        if error is not None:
            self.broken[reference] = error
        return reference

    def load_all(self):
        return dict(self.named)

    async def preflight(self, bundle, like):
        return None

    def load_candidate(self, bundle, like, *, concurrency=None, checked=None):
        assert like.name == bundle.manifest.kind
        if error := self.broken.get(bundle.manifest.reference):
            raise type(error)(*error.args)  # a fresh one: a traceback keeps all that its frames held
        return self.known[bundle.manifest.reference]

    def find_bundles(self):
        return {name: each.bundle for name, each in self.named.items()}

    def find_bundle(self, reference):
        if reference not in self.known:
            raise BundleNotFoundError(f"no bundle {reference}")
        return self.known[reference].bundle


def second_version(name="fake", version="1.1.0", shift=0.5):
    """Another version of a fake, whose values are higher."""
    return loaded_fake(ShiftedScorer(shift), name, version)


@asynccontextmanager
async def switchable(loader, settings=None):
    """A ready runtime on the loader's models, and its switch."""
    async with ready_runtime(settings, loader=loader) as runtime:
        assert runtime.switch is not None
        try:
            yield runtime, runtime.switch
        finally:
            let_go(each.scorer for each in loader.known.values())


class ShadowsSince(Since):
    """What shadows counted of fake:1.1.0 since this was made."""

    def __init__(self):
        super().__init__("shadow_", scorer="fake", model="fake:1.1.0", served="fake:1.0.0")

    def outcomes(self):
        counts = {each: int(self("turns_total", outcome=each)) for each in ("compared", "failed", "full", "late")}
        return {each: count for each, count in counts.items() if count}


class Looks:
    """Counts how often it is asked whether nothing else waits."""

    def __init__(self):
        self.count = 0

    def of(self, is_idle):
        def look():
            self.count += 1
            return is_idle()

        return look


class Longer(FakeScorer):
    """Gives each response two words more."""

    def score(self, batch):
        return [RawScore(raw.value + 0.02) for raw in super().score(batch)]


def said(words, **fields):
    """A turn of so many words, with the answer that a served FakeScorer gave it."""
    value = words / 100
    score = Score(
        value=value, percentile=float(words), details={}, model="fake:1.0.0",
        tokens=TokenCount(used=words, dropped=0), cached=False, label=fields.pop("label", None), stand_in=False,
    )  # fmt: skip
    response = " ".join(["word"] * words)
    item = Item(turn=TurnToScore((), response), asked={"fake": {}}, deadline=Deadline.after_ms(1000), **fields)
    return item, Outcome(scores={"fake": score})


@asynccontextmanager
async def shadows_of(scorer, *, share=1.0, is_idle=lambda: True, stall_seconds=60, threshold=None):
    version = candidate_version(scorer, share)
    version = replace(version, loaded=replace(version.loaded, threshold=threshold))
    found = Shadows([version], lambda _: "fake:1.0.0", is_idle, ExecutorWatch(stall_seconds=stall_seconds))
    try:
        yield found
    finally:
        scorer.gate.set()
        await found.stop()


def engine_of(*, models=(), **given):
    """An engine of those scorers."""
    scorers = {name: given.pop(name) for name in ("fake", "other", "reaction", "encoder") if name in given}
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    return Engine(models, load=lambda _: loaded, **given)


def dialogue(id_, *texts):
    """The user speaks first."""
    turns = [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(texts)]
    return Dialogue(id_, turns)


def values(result, scorer="fake"):
    """The values of its turns."""
    return [turn.scores[scorer].value for turn in result.turns]
