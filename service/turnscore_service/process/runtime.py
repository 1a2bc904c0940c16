"""The runtime of one process: builds the pipeline from settings, starts it, drains it, stops it. Computes nothing."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from turnscore_models import BundleError
from turnscore_wire import ModelsReply

from turnscore_service.cache.redis_client import open_store
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import ScoreCache
from turnscore_service.conversations.registry import ConversationRegistry
from turnscore_service.errors import OverloadedError
from turnscore_service.inference.onnx_library import DeviceError
from turnscore_service.keys.access import Access
from turnscore_service.keys.callers import Caller
from turnscore_service.path.admission import Admission
from turnscore_service.path.answered_bodies import AnsweredBodies
from turnscore_service.path.answerer import Answerer
from turnscore_service.path.batcher import Batcher
from turnscore_service.path.computation import Workshop
from turnscore_service.path.loop_time import LoopTime
from turnscore_service.path.pipeline import ScoringPipeline
from turnscore_service.path.request_checks import Roster, choose_defaults
from turnscore_service.path.similarity import SIMILARITY
from turnscore_service.path.stages import StageWatch
from turnscore_service.path.tokenizer_stage import Tokenizing
from turnscore_service.process.health import Health
from turnscore_service.process.model_loader import load_scorers
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.settings.service import Settings

Loader = Callable[[Settings], Mapping[str, LoadedScorer]]

_LOGGER = logging.getLogger("turnscore.runtime")


class Runtime:
    """One process's pipeline from start to stop. The doors ask it for the pipeline."""

    def __init__(
        self, settings: Settings, load: Loader | None = None, exit_process: Callable[[int], object] = os._exit
    ) -> None:
        """`load` finds the scorers; by default those of the bundles that the settings name.

        Raises UnusableKeysError where the file of API keys cannot be read.
        """
        self.settings = settings
        self.access = Access(settings.auth)
        self._exit = exit_process
        self._load_scorers = load
        self._worker = 0
        self.health = Health()
        self.loop_time = LoopTime()
        self.conversations = ConversationRegistry(settings)
        self.answered = AnsweredBodies()
        self._pipeline: ScoringPipeline | None = None
        self._shared: RedisLevel | None = None
        self._loading: asyncio.Task[None] | None = None

    def start(self, worker: int = 0) -> None:
        """Begins to load the models in the background, so that /livez and /readyz answer meanwhile.

        `worker` is this process's number among the workers, from 0: it decides which CUDA device is this one's.
        """
        self._worker = worker
        self._loading = asyncio.create_task(self._load())

    async def wait_until_loaded(self) -> None:
        """Returns when the models are loaded or refused; `health` says which."""
        if self._loading is not None:
            await self._loading

    def begin_drain(self) -> None:
        """Turns readiness off and warns live conversations; requests that still come are answered."""
        self.health.become("draining", "the service is shutting down")
        self.conversations.begin_drain()

    async def end_conversations(self) -> None:
        """Returns when live conversations have their last answers, at the latest after `shutdown_seconds`."""
        self.conversations.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.shutdown_seconds):
                await self.conversations.wait_until_empty()

    async def stop(self) -> None:
        """Returns when everything in flight is answered, at the latest after `shutdown_seconds`."""
        self.begin_drain()
        if self._loading is not None:
            self._loading.cancel()
        if self._pipeline is not None:
            try:
                async with asyncio.timeout(self.settings.shutdown_seconds):
                    await self._pipeline.stop()
            except TimeoutError:
                _LOGGER.error("work in flight did not finish within shutdown_seconds")
            self._pipeline.close()
        if self._shared is not None:
            await self._shared.stop()

    def pipeline(self) -> ScoringPipeline:
        """The pipeline. Raises NotReadyError, with the reason, while there is none."""
        if self._pipeline is None:
            raise self.health.not_ready()
        return self._pipeline

    def has_refused(self) -> bool:
        """Whether there is anybody whose requests may have to be shed."""
        return self._pipeline is not None and self._pipeline.shedding.has_refused()

    def asks(self, call: str, scorer: str) -> bool:
        """Whether a request that names no scorers asks this one, by its call."""
        if self._pipeline is None:
            return False
        roster = self._pipeline.roster
        if call == SIMILARITY:
            return roster.encoder is not None and scorer == roster.encoder.name
        return scorer in (roster.ranking if call == "rank" else roster.defaults)

    def is_encoder(self, scorer: str) -> bool:
        """Whether it is the one that only a comparison of texts asks."""
        encoder = None if self._pipeline is None else self._pipeline.roster.encoder
        return encoder is not None and scorer == encoder.name

    def full_scorer(self, caller: Caller) -> str | None:
        """The scorer whose requests by this caller may be refused undecoded, by `shed`; None where there is none."""
        return None if self._pipeline is None else self._pipeline.shedding.full_scorer(caller.share)

    def shed(self, caller: Caller) -> OverloadedError | None:
        """The error for the caller's request that asks the full scorer; None where it is to be decoded."""
        return None if self._pipeline is None else self._pipeline.shedding.shed(caller.share)

    def models(self, request_id: str) -> ModelsReply:
        """What is loaded, and the limits in force. Raises NotReadyError."""
        return ModelsReply(request_id=request_id, models=self.pipeline().models(), limits=self.settings.limits)

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            load = self._load_scorers or partial(load_scorers, worker=self._worker)
            scorers = await loop.run_in_executor(None, load, self.settings)
            roster = choose_defaults(scorers, self.settings.default_scorers)
        except DeviceError as error:
            _LOGGER.error("the device cannot be used: %s", error)
            self.health.become("refused", str(error))
            return
        except BundleError as error:
            _LOGGER.error("a bundle was refused: %s", error)
            self.health.become("refused", str(error))
            return
        except Exception as error:
            _LOGGER.exception("loading failed")
            self.health.become("refused", f"loading the models failed: {type(error).__name__}")
            return
        self._pipeline = self._build_pipeline(roster)
        # What is loaded lives as long as the process: a garbage collection need not walk through it again and again.
        gc.collect()
        gc.freeze()
        self.health.become("ready")
        _LOGGER.info("ready", extra={"models": [each.bundle.manifest.reference for each in scorers.values()]})

    def _build_pipeline(self, roster: Roster) -> ScoringPipeline:
        settings, scorers = self.settings, roster.loaded
        watch = StageWatch(
            stall_seconds=settings.runtime.stall_seconds,
            on_death=self.health.lose,
            on_revival=self.health.regain,
            on_hopeless=self._give_up,
        )
        workshops = {
            name: Workshop(
                loaded,
                Tokenizing(loaded, watch),
                Batcher(loaded, settings.batching, watch),
            )
            for name, loaded in scorers.items()
        }
        admission = Admission(
            settings.admission, {name: each.batcher.seconds_per_token for name, each in workshops.items()}
        )
        if address := settings.cache.address():
            self._shared = RedisLevel(open_store(address, settings.cache), settings.cache)
        cache = ScoreCache(scorers, settings.cache, self._shared)
        if self._shared is not None:
            models = [each.bundle.manifest.reference for each in scorers.values()]
            self._shared.start(models, cache.take_mark)
        answerer = Answerer(workshops, admission, cache, self.loop_time)
        return ScoringPipeline(roster, workshops, answerer, settings.limits, self.loop_time)

    def _give_up(self, stage: str) -> None:
        """Ends a process whose stage cannot be revived, for its supervisor to start afresh: hung threads stay."""
        _LOGGER.critical("stage %s cannot be revived; the process ends", stage)
        self._exit(os.EX_SOFTWARE)
