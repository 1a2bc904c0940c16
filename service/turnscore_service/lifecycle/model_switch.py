"""Builds the pipeline of a set of models, and switches models between two requests, or changes nothing.

    find ──▶ preflight ──▶ load, warm ───────────▶ take the place ──▶ wait for the old ones' requests ──▶ drop them
             (a process     (a thread; callers    (one step of       (a further switch is refused
              of its own)    get the old ones)     the event loop)    until this is done)

Whatever fails before the place is taken leaves everything as it was.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from turnscore_core.inference.devices import usable_cpus
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_loader import ModelLoader
from turnscore_core.model_set import ModelSet, choose_defaults
from turnscore_core.preflight import run_in_background
from turnscore_models.admin import AdminReport, MemoryReadings
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import CRITERION, BundleError

from turnscore_service import metrics
from turnscore_service.auth.access import UnusableKeysError
from turnscore_service.cache.redis_client import open_store
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import ScoreCache
from turnscore_service.lifecycle.health import Health
from turnscore_service.lifecycle.loading import load_combinations
from turnscore_service.lifecycle.process import resident_bytes, return_free_memory
from turnscore_service.scheduling.admission import Admission
from turnscore_service.scheduling.executor import ExecutorWatch
from turnscore_service.scheduling.fairness import CooperativeScheduler
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.scheduler import Scheduler, ScorerRuntime, SingleFlight
from turnscore_service.scheduling.shadow import Idleness, Shadows
from turnscore_service.scheduling.versions import CandidateVersions, TrafficSplit
from turnscore_service.settings.service import Settings


class PipelineBuilder:
    """Makes the pipeline of each set of models. Belongs to one event loop.

    What belongs to no set is the same for all: the room that is held, requests in flight, the cache's levels, the watch
    over executors. What belongs to a scorer that stays, its queue and its threads, goes on in the next pipeline.
    """

    def __init__(self, settings: Settings, cooperative: CooperativeScheduler, watch: ExecutorWatch) -> None:
        self._settings = settings
        self._watch = watch
        self._admission = Admission(settings.admission)
        self._in_flight: SingleFlight = {}
        self._cooperative = cooperative
        self._runtimes: Mapping[str, ScorerRuntime] = {}
        self._cache: ScoreCache | None = None
        self._shared: RedisLevel | None = None
        self.candidates = CandidateVersions()  # the versions that shadow and split those that are served

    def build_first(self, model_set: ModelSet, candidates: CandidateVersions) -> ScoringPipeline:
        """The pipeline of the models that the process begins with; begins to connect to the shared cache.

        The `candidates` shadow and split the models that follow, too.
        """
        self.candidates = candidates
        if address := self._settings.cache.address():
            self._shared = RedisLevel(open_store(address, self._settings.cache), self._settings.cache)
        cache = ScoreCache(self._working(model_set), self._settings.cache, self._shared)
        if self._shared is not None:
            self._shared.start(cache.models, cache.take_mark)
        return self.build(model_set, cache)

    async def open_cache(self, model_set: ModelSet) -> ScoreCache:
        """The cache of models that are to be served next, which knows what was cleared of theirs."""
        cache = ScoreCache(self._working(model_set), self._settings.cache, before=self._cache)
        if self._shared is not None:
            await self._shared.follow(cache.models, cache.take_mark)
        return cache

    async def stop(self) -> None:
        """Leaves the shared cache."""
        if self._shared is not None:
            await self._shared.stop()

    def build(self, model_set: ModelSet, cache: ScoreCache) -> ScoringPipeline:
        """The pipeline that takes the place of the latest one at once: gauges and paces are the next one's already."""
        self._cache = cache
        self._runtimes = self._open_runtimes(self._working(model_set))
        settings = self._settings
        return ScoringPipeline(
            model_set,
            self._runtimes,
            Scheduler(
                self._runtimes,
                cache,
                model_set.combinations,
                self._admission,
                self._in_flight,
                self._cooperative,
                self._shared,
            ),
            settings.limits,
            self._cooperative,
            settings.metric_tenants,
            TrafficSplit(model_set, self.candidates.splits),
            self._cast_shadows(model_set),
        )

    def _working(self, model_set: ModelSet) -> dict[str, LoadedScorer]:
        """All that answers callers, by the names under which it works."""
        return {**model_set.loaded, **{each.loaded.name: each.loaded for each in self.candidates.splits}}

    def _cast_shadows(self, model_set: ModelSet) -> Shadows | None:
        if not self.candidates.shadows:
            return None
        settings = self._settings
        batchers = [each.batcher for each in self._runtimes.values() if each.computes is each]
        idleness = Idleness(batchers, self._admission.has_work, max(1, usable_cpus() // settings.workers))
        return Shadows(
            self.candidates.shadows,
            lambda kind: model_set.scorers[kind].bundle.manifest.reference,
            idleness.is_idle,
            ExecutorWatch(stall_seconds=settings.runtime.stall_seconds),
        )

    def _open_runtimes(self, working: Mapping[str, LoadedScorer]) -> dict[str, ScorerRuntime]:
        """By name. Of the scorers of a pass the first that is no criterion computes for all, or else the first."""
        computing: dict[str, ScorerRuntime] = {}
        for loaded in sorted(working.values(), key=lambda each: each.bundle.manifest.kind == CRITERION):
            if loaded.pass_key not in computing:
                computing[loaded.pass_key] = self._open_runtime(loaded)
        self._admission.keep_only({each.loaded.name for each in computing.values()})

        def runtime_of(loaded: LoadedScorer) -> ScorerRuntime:
            computes = computing[loaded.pass_key]
            if computes.loaded is loaded:
                return computes
            return ScorerRuntime(loaded, self._settings.batching, self._watch, computes=computes)

        return {name: runtime_of(loaded) for name, loaded in working.items()}

    def _open_runtime(self, loaded: LoadedScorer) -> ScorerRuntime:
        before = self._runtimes.get(loaded.name)
        if before is not None and before.computes is before:
            if before.loaded is loaded:
                return before
            before.batcher.hand_gauges_over()
        runtime = ScorerRuntime(loaded, self._settings.batching, self._watch)
        self._admission.track(loaded.name, runtime.batcher.seconds_per_token)
        return runtime


# The bundles that are to take the places of served ones, by scorer.
_Find = Callable[[ScoringPipeline], dict[str, Bundle]]

_LOGGER = logging.getLogger("turnscore.models")


class SwitchRefusedError(Exception):
    """Nothing was switched; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Switched:
    # The model before, `name:version`, by the one in its place; empty where what was asked for is served already.
    replaced: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    memory: MemoryReadings | None = None


@dataclass(frozen=True, kw_only=True)
class ServedPlace:
    """Where the served pipeline stands: what answers at this moment, and how another comes to."""

    find: Callable[[], ScoringPipeline | None]
    check: Callable[[ModelSet], object]  # raises UnusableKeysError where an API key names what would not be served
    take: Callable[[ScoringPipeline], object]


class ModelSwitch:
    """Switches the models of one process, one switch at a time. Belongs to one event loop."""

    def __init__(
        self, settings: Settings, health: Health, loader: ModelLoader, builder: PipelineBuilder, place: ServedPlace
    ) -> None:
        self._settings = settings
        self._health = health
        self._loader = loader
        self._builder = builder
        self._place = place
        self._doing = ""
        self._task: asyncio.Task[Switched] | None = None
        self._may_be_given_up = False

    async def serve(self, reference: str) -> Switched:
        """Serves that bundle in the place of the served one of its name. Raises SwitchRefusedError."""
        return await self._begin(f"{reference} is being loaded", lambda served: self._find_one(reference, served))

    async def reload(self) -> Switched:
        """Serves what the settings name at this moment: the newest version where they name none. Raises as `serve`."""
        return await self._begin("the settings' bundles are being loaded", self._find_changed)

    async def stop(self) -> None:
        """Gives up a switch that has not taken its place yet, and waits for the end of one that has."""
        if self._task is not None and not self._task.done():
            if self._may_be_given_up:
                self._task.cancel()
            await asyncio.wait((self._task,))

    def report(self, worker: int, pid: int) -> AdminReport:
        """What is served."""
        pipeline = self._place.find()
        loaded = {} if pipeline is None else pipeline.model_set.loaded
        models = {kind: each.bundle.manifest.reference for kind, each in loaded.items()}
        return AdminReport(worker=worker, pid=pid, outcome="serving", reason=self._doing, models=models)

    async def _begin(self, doing: str, find: _Find) -> Switched:
        """The switch goes on if whoever asked for it leaves."""
        if self._doing:
            raise self._refused(f"another switch is under way: {self._doing}")
        self._doing, self._may_be_given_up = doing, True
        self._task = asyncio.create_task(self._attempt(find))
        return await asyncio.shield(self._task)

    async def _attempt(self, find: _Find) -> Switched:
        refusal = ""
        try:
            done = await self._switch(find)
        except asyncio.CancelledError:
            refusal = "the service is shutting down"
        except (SwitchRefusedError, BundleError, DeviceError, UnusableKeysError) as error:
            refusal = f"API key {error}" if isinstance(error, UnusableKeysError) else str(error)
        except Exception as error:
            _LOGGER.exception("the switch failed")
            refusal = f"loading failed: {type(error).__name__}; the log says where"
        finally:
            self._doing = ""
        if refusal:
            # Out of the clauses above: an error that came of another would keep the models in that one's frames.
            await run_in_background(return_free_memory)
            raise self._refused(refusal)
        metrics.MODEL_SWITCHES.labels("switched" if done.replaced else "unchanged").inc()
        _LOGGER.info("models switched" if done.replaced else "models unchanged", extra=_described(done))
        return done

    def _refused(self, reason: str) -> SwitchRefusedError:
        metrics.MODEL_SWITCHES.labels("refused").inc()
        _LOGGER.error("a model switch was refused: %s", reason)
        return SwitchRefusedError(reason)

    def _require_served(self) -> ScoringPipeline:
        pipeline = self._place.find()
        if pipeline is None or self._health.state != "ready":
            raise SwitchRefusedError(f"the service is {self._health.state}: {self._health.reason}")
        return pipeline

    async def _switch(self, find: _Find) -> Switched:
        started_at, before_bytes = time.monotonic(), resident_bytes()
        served = self._require_served()
        bundles = await run_in_background(partial(find, served))
        if not bundles:
            return Switched(seconds=time.monotonic() - started_at)
        checked = {
            kind: await self._loader.preflight(each, served.model_set.loaded[kind]) for kind, each in bundles.items()
        }
        model_set, note = await run_in_background(partial(self._load, bundles, checked, served.model_set))
        between_bytes = resident_bytes()
        loaded = served.model_set.loaded
        replaced = {each.manifest.reference: loaded[kind].bundle.manifest.reference for kind, each in bundles.items()}
        current = await self._take_place(model_set)
        self._doing = f"the last requests of {', '.join(replaced.values())} are being answered"
        await served.retire(current)
        del served, loaded  # the last references to what is dropped
        await run_in_background(return_free_memory)
        memory = MemoryReadings(before_bytes=before_bytes, between_bytes=between_bytes, after_bytes=resident_bytes())
        return Switched(replaced=replaced, reason=note, seconds=time.monotonic() - started_at, memory=memory)

    async def _take_place(self, model_set: ModelSet) -> ScoringPipeline:
        cache = await self._builder.open_cache(model_set)
        self._require_served()  # it may have begun to drain
        self._place.check(model_set)
        pipeline = self._builder.build(model_set, cache)
        self._place.take(pipeline)
        self._may_be_given_up = False
        return pipeline

    def _find_one(self, reference: str, served: ScoringPipeline) -> dict[str, Bundle]:
        names = {each.bundle.manifest.name: kind for kind, each in served.model_set.loaded.items()}
        if "/" not in reference:
            _require_served_name(reference.partition(":")[0], names)
        bundle = self._loader.find_bundle(reference)
        _require_served_name(bundle.manifest.name, names)
        kind = names[bundle.manifest.name]
        return _without_unchanged({kind: bundle}, served)

    def _find_changed(self, served: ScoringPipeline) -> dict[str, Bundle]:
        found = self._loader.find_bundles()
        loaded = served.model_set.loaded
        if found.keys() != loaded.keys():
            raise SwitchRefusedError(
                f"the settings name the scorers {', '.join(sorted(found))}, but {', '.join(sorted(loaded))} "
                "are served: restart to change them"
            )
        return _without_unchanged(found, served)

    def _load(
        self, bundles: Mapping[str, Bundle], checked: Mapping[str, str | None], before: ModelSet
    ) -> tuple[ModelSet, str]:
        """The model_set with these in it, and what else should be known; the scorers keep their order."""
        loaded = {
            kind: self._loader.load_candidate(bundles[kind], each, checked=checked[kind]) if kind in bundles else each
            for kind, each in before.loaded.items()
        }
        combinations = load_combinations(self._settings.combinations, loaded)
        model_set = choose_defaults(loaded, self._settings.default_scorers, combinations)
        return model_set, self._warn_of_restart(bundles)

    def _warn_of_restart(self, bundles: Mapping[str, Bundle]) -> str:
        """A sentence where the settings, which a restarted worker follows, name something else."""
        try:
            named = self._loader.find_bundles()
        except BundleError:
            named = {}
        others = [each for kind, each in bundles.items() if named.get(kind) != each]
        if not others:
            return ""
        named_others = ", ".join(each.manifest.reference for each in others)
        return f"a restart would serve what TURNSCORE_MODELS names, not {named_others}"


def _without_unchanged(bundles: Mapping[str, Bundle], served: ScoringPipeline) -> dict[str, Bundle]:
    """Those of which anything differs from what is served, be it prose of the manifest."""
    loaded: Mapping[str, LoadedScorer] = served.model_set.loaded
    return {kind: each for kind, each in bundles.items() if each.manifest != loaded[kind].bundle.manifest}


def _require_served_name(name: str, served: Mapping[str, str]) -> None:
    if name not in served:
        known = ", ".join(sorted(served))
        raise SwitchRefusedError(
            f"no bundle named {name!r} is served; served: {known}; add it to TURNSCORE_MODELS and restart"
        )


def _described(done: Switched) -> dict[str, object]:
    memory = {} if done.memory is None else done.memory.model_dump()
    return {"replaced": dict(done.replaced), "seconds": round(done.seconds, 3), "note": done.reason, **memory}
