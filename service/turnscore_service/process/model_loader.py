"""The model loader: the bundles that the settings name become scorers, each on its device. Serves nothing."""

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from pydantic import JsonValue
from turnscore_models import Bundle, BundleError, GraphVariant, read_bundle, starter_bundles
from turnscore_models.store import resolve

from turnscore_service.inference.concurrency import Concurrency
from turnscore_service.inference.cpu_budget import usable_cpus
from turnscore_service.inference.cuda_backend import CudaOptions
from turnscore_service.inference.devices import CPU, Device, choose_devices, count_workers_beside
from turnscore_service.inference.machine import Machine, ThisMachine
from turnscore_service.inference.onnx_backend import RunCount
from turnscore_service.process.warm_up import fill_arenas, measure_budget
from turnscore_service.scorers.loaded_scorer import LoadedScorer, choose_graph, load_scorer, measure_concurrency
from turnscore_service.settings.service import Settings

CUDA_LANES = 2
"""One batch is laid out and copied while another computes. Chosen."""

_LOGGER = logging.getLogger("turnscore.models")


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
    cuda = CudaOptions()
    running = RunCount()
    scorers: dict[str, LoadedScorer] = {}
    for bundle in _find_bundles(settings):
        kind = bundle.manifest.kind
        if kind in scorers:
            raise BundleError(
                f"{scorers[kind].bundle.manifest.reference} and {bundle.manifest.reference} are both of kind {kind}; "
                "name one bundle per kind"
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
    choice = choose_devices(runtime.device, machine, worker=worker)
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
