"""The pipeline builder: makes the pipeline of each set of models that one process serves, one after the other.

What belongs to no set lives here and is the same for all: the room that is held, flights, the cache's levels, the watch
over stages. What belongs to a scorer that stays, its queue and its threads, goes on in the next pipeline.
"""

from collections.abc import Mapping

from turnscore_core.inference.cpu_budget import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet

from turnscore_service.cache.redis_client import open_store
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import ScoreCache
from turnscore_service.scheduling.admission import Admission
from turnscore_service.scheduling.answerer import Answerer, Traffic
from turnscore_service.scheduling.batcher import Batcher
from turnscore_service.scheduling.computation import Workshop
from turnscore_service.scheduling.flights import Flights
from turnscore_service.scheduling.idleness import Idleness
from turnscore_service.scheduling.loop_time import LoopTime
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.shadow import Shadows
from turnscore_service.scheduling.shedding import Shedding
from turnscore_service.scheduling.split import Split, VersionsBeside
from turnscore_service.scheduling.stages import StageWatch
from turnscore_service.scheduling.tokenizer_stage import Tokenizing
from turnscore_service.settings.service import Settings


class PipelineBuilder:
    """Belongs to one event loop."""

    def __init__(self, settings: Settings, loop_time: LoopTime, watch: StageWatch) -> None:
        self._settings = settings
        self._watch = watch
        self._admission = Admission(settings.admission)
        self._traffic = Traffic(Shedding(self._admission), Flights(), loop_time)
        self._workshops: Mapping[str, Workshop] = {}
        self._cache: ScoreCache | None = None
        self._shared: RedisLevel | None = None
        self._beside = VersionsBeside()

    def build_first(self, model_set: ModelSet, beside: VersionsBeside) -> ScoringPipeline:
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
    def beside(self) -> VersionsBeside:
        """The versions that shadow and split those that are served."""
        return self._beside

    async def stop(self) -> None:
        """Leaves the shared cache."""
        if self._shared is not None:
            await self._shared.stop()

    def _build(self, model_set: ModelSet, cache: ScoreCache) -> ScoringPipeline:
        self._cache = cache
        self._workshops = {name: self._open_workshop(loaded) for name, loaded in self._working(model_set).items()}
        settings = self._settings
        return ScoringPipeline(
            model_set,
            self._workshops,
            Answerer(self._workshops, self._traffic, cache, model_set.combinations),
            settings.limits,
            self._traffic.loop_time,
            settings.metric_tenants,
            Split(model_set, self._beside.splits),
            self._cast_shadows(model_set),
        )

    def _working(self, model_set: ModelSet) -> dict[str, LoadedScorer]:
        """All that answers callers, by the names under which it works."""
        return {**model_set.loaded, **{each.loaded.name: each.loaded for each in self._beside.splits}}

    def _cast_shadows(self, model_set: ModelSet) -> Shadows:
        settings = self._settings
        lanes = [each.batcher for each in self._workshops.values()]
        idleness = Idleness(lanes, self._admission.has_work, max(1, usable_cpus() // settings.workers))
        return Shadows(
            self._beside.shadows,
            lambda kind: model_set.scorers[kind].bundle.manifest.reference,
            idleness.is_idle,
            StageWatch(stall_seconds=settings.runtime.stall_seconds),
        )

    def _open_workshop(self, loaded: LoadedScorer) -> Workshop:
        before = self._workshops.get(loaded.name)
        if before is not None:
            if before.loaded is loaded:
                return before
            before.batcher.hand_gauges_over()
        batcher = Batcher(loaded, self._settings.batching, self._watch)
        self._admission.follow(loaded.name, batcher.seconds_per_token)
        return Workshop(loaded, Tokenizing(loaded, self._watch), batcher)
