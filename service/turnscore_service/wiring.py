"""Wiring: builds the pipeline from settings; the only place that constructs things. Owns the process's life."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial

from pydantic import JsonValue
from turnscore_models import Bundle, BundleError, GraphVariant, read_bundle, starter_bundles
from turnscore_models.store import resolve
from turnscore_wire import ModelsReply

from turnscore_service.access import Access
from turnscore_service.admission import Admission
from turnscore_service.answered_bodies import AnsweredBodies
from turnscore_service.answering import Answerer
from turnscore_service.batching import Batcher
from turnscore_service.cache.redis_client import open_store
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import ScoreCache
from turnscore_service.callers import Caller
from turnscore_service.computing import Workshop
from turnscore_service.conversations import Conversations
from turnscore_service.errors import OverloadedError
from turnscore_service.health import Health
from turnscore_service.inference.concurrency import Concurrency
from turnscore_service.inference.cpu_budget import usable_cpus
from turnscore_service.inference.cuda_backend import CudaOptions
from turnscore_service.inference.devices import CPU, Device, choose_devices, count_workers_beside
from turnscore_service.inference.machine import Machine, ThisMachine
from turnscore_service.inference.onnx_backend import RunCount
from turnscore_service.inference.onnx_library import DeviceError
from turnscore_service.loop_time import LoopTime
from turnscore_service.pipeline import ScoringPipeline
from turnscore_service.request_checks import Roster, choose_defaults
from turnscore_service.scorers.loading import LoadedScorer, choose_graph, load_scorer, measure_concurrency
from turnscore_service.settings import Settings
from turnscore_service.stages import StageWatch
from turnscore_service.tokenizing import Tokenizing
from turnscore_service.warming import fill_arenas, measure_budget

CUDA_LANES = 2
"""One batch is laid out and copied while another computes. Chosen."""

Loader = Callable[[Settings], Mapping[str, LoadedScorer]]

_LOGGER = logging.getLogger("turnscore.wiring")


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
        self.conversations = Conversations(settings)
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
        """Turns readiness off and tells live conversations; requests that still come are answered."""
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
        return scorer in (roster.ranking if call == "rank" else roster.defaults)

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
        settings, scorers = self.settings, roster.scorers
        watch = StageWatch(settings.runtime.stall_seconds, self.health.lose, self.health.regain, self._give_up)
        workshops = {
            name: Workshop(
                loaded,
                Tokenizing(loaded, watch),
                Batcher(loaded, settings.batching, watch),
            )
            for name, loaded in scorers.items()
        }
        admission = Admission(
            settings.admission, {name: each.batcher.seconds_a_token for name, each in workshops.items()}
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


def load_scorers(settings: Settings, *, worker: int = 0, machine: Machine | None = None) -> dict[str, LoadedScorer]:
    """The scorers of the bundles that the settings name, by kind; of the starter bundles where they name none.

    Raises BundleError where one is refused, where two are of one kind, or where there is none; DeviceError where the
    device that was asked for cannot be used.
    """
    # A request's few texts are tokenized faster by one thread than by a pool, whose threads would take the CPUs from
    # inference: measured on 2 CPUs, 0.24 ms instead of 0.40 for one turn.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    machine = machine or ThisMachine()
    devices = _choose_devices(settings, machine, worker)
    cuda = CudaOptions(settings.runtime.tensorrt_cache, settings.runtime.cuda_graphs)
    running = RunCount()
    scorers: dict[str, LoadedScorer] = {}
    for bundle in _find_bundles(settings):
        kind = bundle.manifest.kind
        if kind in scorers:
            raise BundleError(
                f"{scorers[kind].bundle.manifest.reference} and {bundle.manifest.reference} are both of kind {kind}; "
                "name one bundle a kind"
            )
        bundle = _with_options(bundle, settings.options.get(kind, {}))
        variant, device = choose_graph(bundle, devices)
        if device != devices[0]:
            _LOGGER.info("%s has no graph for %s; it runs on the CPU", bundle.manifest.reference, devices[0])
        concurrency = _choose_concurrency(settings, bundle, variant, device)
        loaded = load_scorer(bundle, variant, concurrency=concurrency, running=running, device=device, cuda=cuda)
        scorers[kind] = replace(loaded, threshold=settings.thresholds.get(kind, loaded.threshold))
        described = {"model": bundle.manifest.reference, "graph": variant, "device": str(device)}
        _LOGGER.info("loaded", extra={**described, **asdict(concurrency)})
    if not scorers:
        raise BundleError("there is no bundle to load: TURNSCORE_MODELS names none and no starter bundle is installed")
    for loaded in scorers.values():
        if loaded.device == CPU:
            fill_arenas(loaded, settings.batching.max_batch_tokens or loaded.budget.most_tokens)
    return _share_memory(scorers, settings, machine)


def _share_memory(scorers: Mapping[str, LoadedScorer], settings: Settings, machine: Machine) -> dict[str, LoadedScorer]:
    """The scorers with their batch budgets: on CUDA, what their part of the free memory allows."""
    shared = dict(scorers)
    on_cuda = {name: each for name, each in scorers.items() if each.device != CPU}
    if not on_cuda or settings.batching.max_batch_tokens:
        return shared
    index = next(iter(on_cuda.values())).device.index
    beside = count_workers_beside(settings.runtime.device, settings.workers, len(machine.cuda_devices().gpus))
    may_take = settings.runtime.gpu_memory_share * machine.free_bytes(index) / beside / len(on_cuda)
    for name, loaded in on_cuda.items():
        part = int(may_take / loaded.concurrency.lanes)
        shared[name] = measure_budget(loaded, partial(machine.free_bytes, index), part)
        _LOGGER.info("%s takes batches of up to %d tokens", name, shared[name].budget.most_tokens)
    return shared


def _choose_devices(settings: Settings, machine: Machine, worker: int) -> tuple[Device, ...]:
    runtime = settings.runtime
    choice = choose_devices(runtime.device, machine, worker=worker, with_tensorrt=runtime.tensorrt_cache is not None)
    if choice.note:
        _LOGGER.info("computing on the CPU: %s", choice.note)
    return choice.devices


def _choose_concurrency(settings: Settings, bundle: Bundle, variant: GraphVariant, device: Device) -> Concurrency:
    """What the settings say, else what is measured on this worker's share of the CPUs."""
    cpus = max(1, usable_cpus() // settings.workers)
    runtime = settings.runtime
    if device != CPU:
        return Concurrency(runtime.lanes or CUDA_LANES)
    if runtime.threads:
        return Concurrency(runtime.lanes or max(1, cpus // runtime.threads), runtime.threads)
    measured = measure_concurrency(bundle, variant, cpus)
    return replace(measured, lanes=runtime.lanes or measured.lanes)


def _with_options(bundle: Bundle, options: Mapping[str, JsonValue]) -> Bundle:
    """The bundle as if its manifest had these options too; its digest is then another."""
    manifest = bundle.manifest.model_copy(update={"options": {**bundle.manifest.options, **options}})
    return replace(bundle, manifest=manifest) if options else bundle


def _find_bundles(settings: Settings) -> list[Bundle]:
    if settings.models:
        return [resolve(reference) for reference in settings.models]
    return [read_bundle(folder) for folder in starter_bundles()]
