"""The runtime of one process: builds the pipeline from settings, starts it, drains it, stops it. Computes nothing."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from contextlib import suppress

from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.model_loader import ModelLoader
from turnscore_core.model_set import ModelSet, choose_defaults, describe_models
from turnscore_models.manifest import BundleError
from turnscore_wire import ModelsReply

from turnscore_service import metrics
from turnscore_service.auth.access import Access, UnusableKeysError
from turnscore_service.conversations.registry import ConversationRegistry
from turnscore_service.lifecycle.health import Health
from turnscore_service.lifecycle.loading import load_combinations, load_versions, offer_of
from turnscore_service.lifecycle.model_switch import ModelSwitch, PipelineBuilder, ServedPlace, SwitchRefusedError
from turnscore_service.scheduling.admission import RecentRequests
from turnscore_service.scheduling.executor import ExecutorWatch
from turnscore_service.scheduling.fairness import CooperativeScheduler
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.slow_requests import SlowLog
from turnscore_service.scheduling.versions import describe_versions
from turnscore_service.settings.service import Settings
from turnscore_service.telemetry.recorder import TelemetryRecorder, open_telemetry

_WRITE_SECONDS = 0.5  # how much later than a worker's own scrapes those of the other workers may know what it counted

_REFUSALS = {DeviceError: "the device cannot be used", UnusableKeysError: "the API keys cannot be used"}
_LOGGER = logging.getLogger("turnscore.runtime")


class Runtime:
    """One process's pipeline from start to stop. The API asks it for the pipeline."""

    def __init__(
        self, settings: Settings, loader: ModelLoader | None = None, exit_process: Callable[[int], object] = os._exit
    ) -> None:
        """`loader` finds the scorers, by default those of the bundles that the settings name.

        Raises UnusableKeysError where the file of API keys cannot be read.
        """
        self.settings = settings
        self.access = Access(settings.auth)
        self._exit = exit_process
        self._loader = loader
        self.health = Health()
        self.cooperative = CooperativeScheduler()
        self.slow = SlowLog(settings.log_slow_seconds)
        self.conversations = ConversationRegistry(settings, self.cooperative)
        self.answered = RecentRequests()
        self.served: ScoringPipeline | None = None  # what answers at this moment; None until the models are loaded
        watch = ExecutorWatch(
            stall_seconds=settings.runtime.stall_seconds,
            on_death=self.health.lose,
            on_revival=self.health.regain,
            on_unrecoverable=self._give_up,
        )
        self._builder = PipelineBuilder(settings, self.cooperative, watch)
        # Puts other versions in the place of those that are served, once the process has started.
        self.switch: ModelSwitch | None = None
        self._loading: asyncio.Task[None] | None = None
        # Where calls are recorded, once the process has started, if they are.
        self.telemetry: TelemetryRecorder | None = None
        self._background: list[asyncio.Task[None]] = []
        self._on_ready: Callable[[], object] | None = None

    def start(self, worker: int = 0, on_ready: Callable[[], object] | None = None) -> None:
        """Begins to load the models in the background, so that /livez and /readyz answer meanwhile.

        `worker` is this process's number among the workers, from 0: it decides which CUDA device is this one's.
        `on_ready` is called once, when they are loaded.
        """
        self._on_ready = on_ready
        loader = self._loader = self._loader or ModelLoader(self.settings.loading(), worker=worker)
        place = ServedPlace(find=lambda: self.served, check=self._check_keys, take=self._take_pipeline)
        self.switch = ModelSwitch(self.settings, self.health, loader, self._builder, place)
        self.telemetry = open_telemetry(self.settings.telemetry)
        self._loading = asyncio.create_task(self._load(loader))
        self._background = [
            asyncio.create_task(_write_metrics_out(loader.kept)),
            asyncio.create_task(self.access.watch()),
        ]

    async def wait_until_loaded(self) -> None:
        """Returns when the models are loaded or refused; `health` says which."""
        if self._loading is not None:
            await self._loading

    async def reload(self) -> None:
        """Serves what the settings name at this moment; what is refused changes nothing and is in the log."""
        if self.served is None and self.health.state == "refused" and self._loader is not None:
            self.health.become("starting", "the models are being loaded")
            self._loading = asyncio.create_task(self._load(self._loader))
        elif self.switch is not None:
            with suppress(SwitchRefusedError):
                await self.switch.reload()

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
        if self.switch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.shutdown_seconds):
                    await self.switch.stop()
        if self.served is not None:
            try:
                async with asyncio.timeout(self.settings.shutdown_seconds):
                    await self.served.stop()
            except TimeoutError:
                _LOGGER.error("work in flight did not finish within shutdown_seconds")
            self.served.close()
        await self._builder.stop()
        if self.telemetry is not None:
            await asyncio.to_thread(self.telemetry.close)
        for task in self._background:
            task.cancel()
        metrics.write_out()

    def pipeline(self) -> ScoringPipeline:
        """The pipeline. Raises NotReadyError, with the reason, while there is none."""
        if self.served is None:
            raise self.health.not_ready()
        return self.served

    def models(self, request_id: str) -> ModelsReply:
        """What is loaded, and the limits in force. Raises NotReadyError."""
        return ModelsReply(
            request_id=request_id,
            models=describe_models(self.pipeline().split.model_set_for()),
            limits=self.settings.limits,
            candidates=list(describe_versions(self._builder.candidates)),
        )

    async def _load(self, loader: ModelLoader) -> None:
        loop = asyncio.get_running_loop()
        try:
            scorers = await loop.run_in_executor(None, loader.load_all)
            candidates = await loop.run_in_executor(None, load_versions, self.settings, scorers, loader)
            combinations = await loop.run_in_executor(None, load_combinations, self.settings.combinations, scorers)
            model_set = choose_defaults(scorers, self.settings.default_scorers, combinations)
            self.access.expect(offer_of(model_set, candidates))
        except (DeviceError, BundleError, UnusableKeysError) as error:
            _LOGGER.error("%s: %s", _REFUSALS.get(type(error), "the models cannot be served"), error)
            self.health.become("refused", str(error))
            return
        except Exception as error:
            _LOGGER.exception("loading failed")
            self.health.become("refused", f"loading the models failed: {type(error).__name__}")
            return
        self.served = self._builder.build_first(model_set, candidates)
        # What is loaded lives as long as the process: a garbage collection need not walk through it again and again.
        gc.collect()
        gc.freeze()
        self.health.become("ready")
        _LOGGER.info("serving", extra={"models": [each.bundle.manifest.reference for each in scorers.values()]})
        if self._on_ready is not None:
            self._on_ready()

    def _check_keys(self, model_set: ModelSet) -> None:
        self.access.expect(offer_of(model_set, self._builder.candidates))

    def _take_pipeline(self, pipeline: ScoringPipeline) -> None:
        """Lets it answer every request that begins from here on."""
        self.served = pipeline
        self.answered.clear()

    def _give_up(self, executor: str) -> None:
        """Ends a process whose executor cannot be restarted, so its supervisor starts a new one; hung threads stay."""
        _LOGGER.critical("executor %s cannot be restarted; the process exits", executor)
        self._exit(os.EX_SOFTWARE)


async def _write_metrics_out(kept: VectorStore) -> None:
    report = metrics.KeptVectorReport()
    while True:
        await asyncio.sleep(_WRITE_SECONDS)
        report.update(kept.counts())
        metrics.write_out()
