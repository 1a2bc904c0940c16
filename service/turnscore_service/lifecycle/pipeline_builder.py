"""The pipeline builder: makes the pipeline of each set of models that one process serves, one after the other.

What belongs to no set lives here and is the same for all: the room that is held, flights, the cache's levels, the watch
over stages. What belongs to a scorer that stays, its queue and its threads, goes on in the next pipeline.
"""

from collections.abc import Mapping

from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet

from turnscore_service.cache.redis_client import open_store
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import ScoreCache
from turnscore_service.scheduling.admission import Admission, Shedding
from turnscore_service.scheduling.batcher import Batcher
from turnscore_service.scheduling.executor import ExecutorWatch, TokenizerExecutor
from turnscore_service.scheduling.fairness import CooperativeScheduler
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.scheduler import Scheduler, ScorerRuntime, SharedState, SingleFlight
from turnscore_service.scheduling.shadow import Idleness, Shadows
from turnscore_service.scheduling.versions import CandidateVersions, Split
from turnscore_service.settings.service import Settings


class PipelineBuilder:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, cooperative: CooperativeScheduler, watch: ExecutorWatch) -> None:
        self._settings = settings
        self._watch = watch
        self._admission = Admission(settings.admission)
        self._shared_state = SharedState(Shedding(self._admission), SingleFlight(), cooperative)
        self._runtimes: Mapping[str, ScorerRuntime] = {}
        self._cache: ScoreCache | None = None
        self._shared: RedisLevel | None = None
        self._beside = CandidateVersions()

    def build_first(self, model_set: ModelSet, beside: CandidateVersions) -> ScoringPipeline:
        """The pipeline of the models that the process begins with; begins to connect to the shared cache.

        The versions `beside` them shadow and split those that follow, too.
        """
        self._beside = beside
        if address := self._settings.cache.address():
            self._shared = RedisLevel(open_store(address, self._settings.cache), self._settings.cache)
        cache = ScoreCache(self._working(model_set), self._settings.cache, self._shared)
        if self._shared is not None:
            self._shared.start(cache.models, cache.take_mark)
        return self._build(model_set, cache)

    async def open_cache(self, model_set: ModelSet) -> ScoreCache:
        """The cache of models that are to be served next, which knows what was cleared of theirs."""
        cache = ScoreCache(self._working(model_set), self._settings.cache, before=self._cache)
        if self._shared is not None:
            await self._shared.follow(cache.models, cache.take_mark)
        return cache

    def build_next(self, model_set: ModelSet, cache: ScoreCache) -> ScoringPipeline:
        """The pipeline that takes the place of the latest one at once: gauges and paces are the next one's already."""
        return self._build(model_set, cache)

    @property
    def beside(self) -> CandidateVersions:
        """The versions that shadow and split those that are served."""
        return self._beside

    async def stop(self) -> None:
        """Leaves the shared cache."""
        if self._shared is not None:
            await self._shared.stop()

    def _build(self, model_set: ModelSet, cache: ScoreCache) -> ScoringPipeline:
        self._cache = cache
        self._runtimes = {name: self._open_runtime(loaded) for name, loaded in self._working(model_set).items()}
        settings = self._settings
        return ScoringPipeline(
            model_set,
            self._runtimes,
            Scheduler(self._runtimes, self._shared_state, cache, model_set.combinations),
            settings.limits,
            self._shared_state.cooperative,
            settings.metric_tenants,
            Split(model_set, self._beside.splits),
            self._cast_shadows(model_set),
        )

    def _working(self, model_set: ModelSet) -> dict[str, LoadedScorer]:
        """All that answers callers, by the names under which it works."""
        return {**model_set.loaded, **{each.loaded.name: each.loaded for each in self._beside.splits}}

    def _cast_shadows(self, model_set: ModelSet) -> Shadows:
        settings = self._settings
        lanes = [each.batcher for each in self._runtimes.values()]
        idleness = Idleness(lanes, self._admission.has_work, max(1, usable_cpus() // settings.workers))
        return Shadows(
            self._beside.shadows,
            lambda kind: model_set.scorers[kind].bundle.manifest.reference,
            idleness.is_idle,
            ExecutorWatch(stall_seconds=settings.runtime.stall_seconds),
        )

    def _open_runtime(self, loaded: LoadedScorer) -> ScorerRuntime:
        before = self._runtimes.get(loaded.name)
        if before is not None:
            if before.loaded is loaded:
                return before
            before.batcher.hand_gauges_over()
        batcher = Batcher(loaded, self._settings.batching, self._watch)
        self._admission.track(loaded.name, batcher.seconds_per_token)
        return ScorerRuntime(loaded, TokenizerExecutor(loaded, self._watch), batcher)
