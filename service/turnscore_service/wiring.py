"""Wiring: builds the pipeline from settings; the only place that constructs things. Owns the process's life."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pydantic import JsonValue
from turnscore_models import Bundle, BundleError, read_bundle, starter_bundles
from turnscore_models.store import resolve
from turnscore_wire import ModelsReply

from turnscore_service.admission import Admission
from turnscore_service.batching import Batcher
from turnscore_service.health import Health
from turnscore_service.inference.cpu_budget import usable_cpus
from turnscore_service.pipeline import ScoringPipeline
from turnscore_service.scorers.loading import LoadedScorer, choose_variant, load_scorer
from turnscore_service.settings import Settings

Loader = Callable[[Settings], Mapping[str, LoadedScorer]]

_LOGGER = logging.getLogger("turnscore.wiring")


class Runtime:
    """One process's pipeline from start to stop. The doors ask it for the pipeline."""

    def __init__(self, settings: Settings, load: Loader | None = None) -> None:
        """`load` finds the scorers; by default those of the bundles that the settings name."""
        self.settings = settings
        self._load_scorers = load or load_scorers
        self.health = Health()
        self._pipeline: ScoringPipeline | None = None
        self._loading: asyncio.Task[None] | None = None
        self._executors: list[ThreadPoolExecutor] = []

    def start(self) -> None:
        """Begins to load the models in the background, so that /livez and /readyz answer meanwhile."""
        self._loading = asyncio.create_task(self._load())

    async def wait_until_loaded(self) -> None:
        """Returns when the models are loaded or refused; `health` says which."""
        if self._loading is not None:
            await self._loading

    def begin_drain(self) -> None:
        """Turns readiness off; requests that still come are answered."""
        self.health.become("draining", "the service is shutting down")

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
        for executor in self._executors:
            executor.shutdown(wait=False, cancel_futures=True)

    def pipeline(self) -> ScoringPipeline:
        """The pipeline. Raises NotReadyError, with the reason, while there is none."""
        if self._pipeline is None:
            raise self.health.not_ready()
        return self._pipeline

    def models(self, request_id: str) -> ModelsReply:
        """What is loaded, and the limits in force. Raises NotReadyError."""
        return ModelsReply(request_id=request_id, models=self.pipeline().models(), limits=self.settings.limits)

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            scorers = await loop.run_in_executor(None, self._load_scorers, self.settings)
        except BundleError as error:
            _LOGGER.error("a bundle was refused: %s", error)
            self.health.become("refused", str(error))
            return
        except Exception as error:
            _LOGGER.exception("loading failed")
            self.health.become("refused", f"loading the models failed: {type(error).__name__}")
            return
        self._pipeline = self._build_pipeline(scorers)
        self.health.become("ready")
        _LOGGER.info("ready", extra={"models": [each.bundle.manifest.reference for each in scorers.values()]})

    def _build_pipeline(self, scorers: Mapping[str, LoadedScorer]) -> ScoringPipeline:
        tokenizing = self._executor("turnscore-tokenize")
        batchers = {
            name: Batcher(loaded, self.settings.batching, self._executor(f"turnscore-{name}"))
            for name, loaded in scorers.items()
        }
        return ScoringPipeline(scorers, batchers, Admission(self.settings.admission), self.settings.limits, tokenizing)

    def _executor(self, name: str) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._executors.append(executor)
        return executor


def load_scorers(settings: Settings) -> dict[str, LoadedScorer]:
    """The scorers of the bundles that the settings name, by kind; of the starter bundles where they name none.

    Raises BundleError where one is refused, where two are of one kind, or where there is none.
    """
    threads = settings.runtime.threads or usable_cpus()
    scorers: dict[str, LoadedScorer] = {}
    for bundle in _find_bundles(settings):
        kind = bundle.manifest.kind
        if kind in scorers:
            raise BundleError(
                f"{scorers[kind].bundle.manifest.reference} and {bundle.manifest.reference} are both of kind {kind}; "
                "name one bundle a kind"
            )
        bundle = _with_options(bundle, settings.options.get(kind, {}))
        scorers[kind] = load_scorer(bundle, choose_variant(bundle), threads=threads)
    if not scorers:
        raise BundleError("there is no bundle to load: TURNSCORE_MODELS names none and no starter bundle is installed")
    return scorers


def _with_options(bundle: Bundle, options: Mapping[str, JsonValue]) -> Bundle:
    """The bundle as if its manifest had these options too; its digest is then another."""
    manifest = bundle.manifest.model_copy(update={"options": {**bundle.manifest.options, **options}})
    return replace(bundle, manifest=manifest) if options else bundle


def _find_bundles(settings: Settings) -> list[Bundle]:
    if settings.models:
        return [resolve(reference) for reference in settings.models]
    return [read_bundle(folder) for folder in starter_bundles()]
