"""The model loader: the bundles that the settings name become scorers, each on its device, with memory warmed up."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property, partial

from turnscore_models.bundle import Bundle, read_bundle, starter_bundles
from turnscore_models.manifest import CRITERION, BundleError, CorruptBundleError, GraphVariant
from turnscore_models.store import resolve
from turnscore_wire import Turn

from turnscore_core.batches import SizedPack, cuda_budget, find_most_tokens, grow_batch
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.cuda_backend import CudaOptions
from turnscore_core.inference.devices import CPU, Device, Machine, choose_devices, count_sharing_workers, usable_cpus
from turnscore_core.inference.onnx_backend import DeviceError, OutOfMemoryError, padded_width
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import LoadedScorer, choose_graph, load_checked, measure_concurrency, measure_pace
from turnscore_core.preflight import PreflightRequest, run_preflight, with_options
from turnscore_core.scorers.scorer import TokenPack, TurnToScore

_DIALOGUE_TURNS = 40  # system turns of the dialogue that memory is taken for; longer ones are computed in parts


def fill_arenas(loaded: LoadedScorer, most_tokens: int, *, while_serving: bool = False) -> None:
    """Runs batches of `most_tokens` of several forms, as many at once as the scorer runs.

    ONNX Runtime keeps the memory of the largest batch of each form. Memory not taken now would be taken bit
    by bit while the service runs, for minutes. `while_serving`, half as many run, and rest after each batch as
    long as it took: what the other half needs is taken when callers fill it.
    """
    concurrent_batches = max(1, loaded.concurrency.batches // 2) if while_serving else loaded.concurrency.batches
    with ThreadPoolExecutor(concurrent_batches) as executor:
        for turns in _forms(loaded, most_tokens):
            packs = sorted(loaded.scorer.encode(turns), key=lambda pack: pack.width)
            sizes = list(map(SizedPack, packs))
            largest = max(range(len(sizes)), key=lambda place: (sizes[place].padded, sizes[place].real))
            low, high = grow_batch(sizes, largest, most_tokens, loaded.budget.waste)
            started_at = time.monotonic()
            list(executor.map(loaded.scorer.score, [packs[low:high]] * concurrent_batches))
            if while_serving:
                # Chosen: a full machine must not make a switch last for ever.
                time.sleep(min(2.0, time.monotonic() - started_at))


def _forms(loaded: LoadedScorer, most_tokens: int) -> Iterator[Sequence[TurnToScore]]:
    """Turns of the widest rows, of medium and of the narrowest, one beyond any batch, and all of a long dialogue's."""
    token_limit = loaded.bundle.manifest.token_limit
    for words in (token_limit, max(1, token_limit // 6), 1):
        yield [_long_turn(number, words) for number in range(most_tokens // (2 * words) + 1)]
    # more than any scorer reads of a turn: quality reads it in as many rows as its bundle allows
    longest = _long_turn(0, 10_000)
    if loaded.scorer.estimate_tokens(longest) > most_tokens:
        yield [longest]
    said = [_long_turn(number, token_limit // 60).response for number in range(2 * _DIALOGUE_TURNS)]
    turns = [Turn(speaker="system" if number % 2 else "user", text=text) for number, text in enumerate(said)]
    yield [TurnToScore(turns[:number], turns[number].text) for number in range(1, len(turns), 2)]


def fill_device(loaded: LoadedScorer, most_tokens: int) -> None:
    """Runs a batch of that many tokens in every slot of a CUDA device, so that the memory for it is taken at once.

    Raises DeviceError where there is not enough.
    """
    packs = list(widest_packs(loaded, most_tokens))
    try:
        with ThreadPoolExecutor(loaded.concurrency.batches) as executor:
            list(executor.map(loaded.scorer.score, [packs] * loaded.concurrency.batches))
    except OutOfMemoryError as error:
        raise DeviceError(f"{loaded.device} has no room for {loaded.model} next to what runs there") from error


def measure_budget(loaded: LoadedScorer, free_bytes: Callable[[], int], may_take_bytes: int) -> LoadedScorer:
    """The scorer with the batch budget that its share of the device's memory allows; takes that memory at once."""
    most_tokens = find_most_tokens(
        lambda tokens: loaded.scorer.score(list(widest_packs(loaded, tokens))), free_bytes, may_take_bytes
    )
    return replace(loaded, budget=cuda_budget(most_tokens))


def widest_packs(loaded: LoadedScorer, tokens: int) -> Iterator[TokenPack]:
    """Packs of the widest rows that the scorer makes, no two alike, of at least that many tokens with padding."""
    number, found = 0, 0
    while found < tokens:
        for pack in loaded.scorer.encode([_long_turn(number, loaded.bundle.manifest.token_limit)]):
            yield pack
            found += len(pack.rows) * padded_width(pack.width)
        number += 1


def _long_turn(number: int, words: int) -> TurnToScore:
    """Context and response of that many words and a few more; whichever end is cut, turns differ by the other."""
    text = f"{number} {'and then ' * (words // 2)}{number}"
    return TurnToScore([Turn(speaker="user", text=text)], text)


_LOGGER = logging.getLogger("turnscore.models")


class ModelLoader:
    """Loads the models of one process: all of them at the start, and later another version of one of them.

    All methods but `preflight` block for seconds, and are called from one thread at a time.
    """

    def __init__(self, settings: LoadSettings, *, worker: int = 0, machine: Machine | None = None) -> None:
        # A request's few texts are tokenized faster by one thread than by a pool, whose threads would take the CPUs
        # from inference: measured on 2 CPUs, 0.24 ms instead of 0.40 for one turn.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._settings = settings
        self._worker = worker
        self._machine = machine or Machine()
        self._load = partial(load_checked, running=[], cuda=CudaOptions())
        self.kept = VectorStore(settings.kept_vector_bytes)  # the vectors of all models of this process

    def load_all(self, *, will_serve: bool = True) -> dict[str, LoadedScorer]:
        """The scorers of the bundles that the settings name, by name; of the starter bundles where they name none.

        What will not serve takes its memory when it needs it: to take it now is half of a load.
        Raises BundleError where one is refused, where two are one scorer, or where there is none; DeviceError where
        the device that was asked for cannot be used.
        """
        bundles = self.find_bundles()
        # Of those that share a pass, criteria come last: the first one computes for all, and is measured.
        in_order = sorted(bundles.items(), key=lambda each: each[1].manifest.kind == CRITERION)
        graphs = {name: (bundle, *self._choose_graph(bundle)) for name, bundle in in_order}

        def load(graph: tuple[Bundle, GraphVariant, Device]) -> LoadedScorer:
            bundle, variant, device = graph
            return self._load(bundle, variant, concurrency=self._first_concurrency(device), device=device)

        # To load one keeps one CPU busy, so they are loaded side by side; what is measured is measured alone, later.
        at_once = self._cpus if all(device == CPU for _, _, device in graphs.values()) else 1
        with ThreadPoolExecutor(min(at_once, len(graphs))) as executor:
            checked = deque(executor.map(load, graphs.values()))
        # Taken out one by one, so that a session which one of other threads replaces is gone before the next scorer's:
        # kept until the end, they were 360 MB of a start's peak (all starter models, 2 cores of an AMD EPYC).
        scorers: dict[str, LoadedScorer] = {}
        firsts: dict[str, str] = {}  # by pass, the scorer that is measured for all of it
        for name in graphs:
            loaded = checked.popleft()
            first = firsts.setdefault(loaded.pass_key, name) if loaded.scorer.pass_key else name
            scorers[name] = self._finish(self._tune(loaded, scorers.get(first)))
        measured = {name: each for name, each in scorers.items() if firsts.get(each.pass_key, name) == name}
        for loaded in measured.values():
            if loaded.device == CPU and will_serve:
                fill_arenas(loaded, self._most_tokens(loaded))
        shared = self._share_memory(measured)
        return {
            name: self._keep_vectors(
                replace(scorers[name], budget=shared[firsts.get(scorers[name].pass_key, name)].budget)
            )
            for name in bundles
        }

    async def preflight(self, bundle: Bundle, like: LoadedScorer) -> str | None:
        """Checks another version of what serves as `like` without delaying callers; the digest of what holds.

        None on a CUDA device, whose memory a second process has no room in: `load_candidate` has to check it. Raises
        BundleError.
        """
        _require_same_scorer(bundle, like)
        bundle = self.with_options(bundle)
        variant, device = self._choose_graph(bundle)
        if device != CPU:
            return None
        request = PreflightRequest(
            folder=bundle.folder, lenders=bundle.lenders, options=bundle.manifest.options, variant=variant
        )
        return await run_preflight(bundle.manifest.reference, request)

    def load_candidate(
        self, bundle: Bundle, like: LoadedScorer, *, concurrency: Concurrency | None = None, checked: str | None = None
    ) -> LoadedScorer:
        """Another version of what serves as `like`, checked and warmed; nothing that serves is changed.

        It runs with the concurrency of `like`, or in `concurrency`: to measure them again would take the CPUs from
        callers. What was checked by that digest is not checked again; `load_checked` sees to it that the same files are
        loaded. On a CUDA device its batches are as large as those of `like`. Raises BundleError where it is
        refused, of another kind, or was changed; DeviceError where its device has no room for both.
        """
        _require_same_scorer(bundle, like)
        bundle = self.with_options(bundle)
        variant, device = self._choose_graph(bundle)
        is_alike = (variant, device) == (like.variant, like.device)
        given = concurrency or (like.concurrency if is_alike else None)
        first = given or self._first_concurrency(device)
        if checked is not None and bundle.digest != checked:
            raise CorruptBundleError(
                f"bundle {bundle.manifest.reference}: its files in {bundle.folder} were changed while it was being "
                "loaded, so what was checked is not what is there; try again when nothing writes them"
            )
        is_checked = checked is not None
        loaded = self._load(bundle, variant, concurrency=first, device=device, is_checked=is_checked)
        loaded = self._finish(loaded if given else self._tune(loaded, None))
        if device == CPU:
            if loaded.pass_key != like.pass_key:
                fill_arenas(loaded, self._most_tokens(loaded), while_serving=True)
        elif device == like.device:
            loaded = replace(loaded, budget=like.budget)
            if bundle.manifest.kind != CRITERION or loaded.pass_key != like.pass_key:  # else another computes for it
                fill_device(loaded, self._most_tokens(loaded))
        else:
            [loaded] = self._share_memory({loaded.name: loaded}).values()
        return self._keep_vectors(loaded)

    def find_bundles(self) -> dict[str, Bundle]:
        """The bundles that the settings name at this moment, by scorer, with the settings' options.

        Raises BundleError where one is refused, where two are one scorer, or where there is none.
        """
        found: dict[str, Bundle] = {}
        named = [resolve(each) for each in self._settings.models] or [read_bundle(each) for each in starter_bundles()]
        for bundle in named:
            scorer = bundle.manifest.scorer
            if scorer in found:
                raise BundleError(
                    f"{found[scorer].manifest.reference} and {bundle.manifest.reference} are both the scorer {scorer}; "
                    "name one bundle for each"
                )
            found[scorer] = self.with_options(bundle)
        if not found:
            raise BundleError(
                "there is no bundle to load: TURNSCORE_MODELS names none and no starter bundle is installed"
            )
        return found

    def find_bundle(self, reference: str) -> Bundle:
        """The bundle, as `resolve` finds it, with the settings' options. Raises BundleError."""
        return self.with_options(resolve(reference))

    def with_options(self, bundle: Bundle) -> Bundle:
        """The bundle as if its manifest had the settings' options too; its digest is then another."""
        options = self._settings.options.get(bundle.manifest.scorer, {})
        return with_options(bundle, {**bundle.manifest.options, **options}) if options else bundle

    @cached_property
    def _devices(self) -> tuple[Device, ...]:
        choice = choose_devices(self._settings.device, self._machine, worker=self._worker)
        if choice.note:
            # Without what a GPU would need: most machines have none.
            _LOGGER.info("computing on the CPU: %s", choice.note.partition("; ")[0])
        return choice.devices

    def _choose_graph(self, bundle: Bundle) -> tuple[GraphVariant, Device]:
        variant, device = choose_graph(bundle, self._devices)
        if device != self._devices[0]:
            # The device is held for nothing; `choose_graph` refuses where it was named.
            _LOGGER.warning("%s has no graph for %s; it runs on the CPU", bundle.manifest.reference, self._devices[0])
        return variant, device

    @property
    def _cpus(self) -> int:
        """This worker's share of them."""
        return max(1, usable_cpus() // self._settings.workers)

    def _first_concurrency(self, device: Device) -> Concurrency:
        """What the settings say, else one slot of one thread, which is where measuring begins."""
        settings = self._settings
        if device != CPU:
            # one batch is laid out and copied while another computes
            return Concurrency(settings.concurrent_batches or 2)
        if settings.threads:
            return Concurrency(settings.concurrent_batches or max(1, self._cpus // settings.threads), settings.threads)
        return Concurrency()

    def _tune(self, checked: LoadedScorer, first: LoadedScorer | None) -> LoadedScorer:
        """The scorer with the concurrency that serves it best, where the settings leave that to be measured.

        It is measured once for all scorers of a pass, of whom `first` was measured.
        """
        settings = self._settings
        if checked.device != CPU or settings.threads:
            return checked
        measured = measure_concurrency(checked, self._cpus) if first is None else first.concurrency
        measured = replace(measured, batches=settings.concurrent_batches or measured.batches)
        if (measured.threads, measured.wide_threads) == (checked.concurrency.threads, checked.concurrency.wide_threads):
            return replace(checked, concurrency=measured)
        return self._load(checked.bundle, checked.variant, concurrency=measured, device=checked.device)

    def _finish(self, checked: LoadedScorer) -> LoadedScorer:
        manifest = checked.bundle.manifest
        threshold = self._settings.thresholds.get(manifest.scorer, checked.threshold)
        loaded = replace(measure_pace(checked), threshold=threshold)
        described = {"model": manifest.reference, "graph": loaded.variant, "device": str(loaded.device)}
        _LOGGER.info("loaded", extra={**described, **asdict(loaded.concurrency)})
        if loaded.threshold_percentile in (0.0, 100.0):  # perhaps a percentile, not a value
            _LOGGER.warning("all reference turns of %s lie on one side of its threshold, %s", loaded.model, threshold)
        return loaded

    def _keep_vectors(self, loaded: LoadedScorer) -> LoadedScorer:
        """The scorer, which from now on shares what it reads with all of the same encoder; no measurement found any."""
        if self._settings.kept_vector_bytes:
            loaded.scorer.keep_vectors(self.kept.of(f"{loaded.first_graph_digest} {loaded.variant} {loaded.device}"))
        return loaded

    def _most_tokens(self, loaded: LoadedScorer) -> int:
        return self._settings.max_batch_tokens or loaded.budget.most_tokens

    def _share_memory(self, scorers: Mapping[str, LoadedScorer]) -> dict[str, LoadedScorer]:
        """The scorers with their batch budgets: on CUDA, what their part of the free memory allows."""
        settings, shared = self._settings, dict(scorers)
        on_cuda = {name: each for name, each in scorers.items() if each.device != CPU}
        if not on_cuda or settings.max_batch_tokens:
            return shared
        index = next(iter(on_cuda.values())).device.index
        sharing = count_sharing_workers(settings.device, settings.workers, len(self._machine.cuda_devices().gpus))
        may_take = settings.gpu_memory_share * self._machine.free_bytes(index) / sharing / len(on_cuda)
        for name, loaded in on_cuda.items():
            part = int(may_take / loaded.concurrency.batches)
            shared[name] = measure_budget(loaded, partial(self._machine.free_bytes, index), part)
            _LOGGER.info("%s takes batches of up to %d tokens", name, shared[name].budget.most_tokens)
        return shared


def load_scorers(settings: LoadSettings, *, worker: int = 0, machine: Machine | None = None) -> dict[str, LoadedScorer]:
    """As `ModelLoader.load_all`, for a program that scores and serves nobody."""
    return ModelLoader(settings, worker=worker, machine=machine).load_all(will_serve=False)


def _require_same_scorer(bundle: Bundle, like: LoadedScorer) -> None:
    if bundle.manifest.scorer != like.name:
        raise BundleError(
            f"{bundle.manifest.reference} is the scorer {bundle.manifest.scorer}, and what serves, "
            f"{like.model}, is {like.name}"
        )
