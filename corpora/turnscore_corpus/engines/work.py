"""What an engine is given: blocks, bundles, and the size of Ray's pool."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from turnscore_core.engine import Engine, SharedScores
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import BundleError, starter_bundles
from turnscore_models.bundle import read_manifest
from turnscore_models.store import resolve

from turnscore_corpus.errors import StoppedError
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder

NAMESPACE = "corpus"
"""Namespace of scores in a Redis, apart from a service's."""
OnBlock = Callable[[BlockManifest], object]


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """How a worker makes its engine. Can be pickled."""

    models: tuple[str, ...] | None = None
    """Bundles, as TURNSCORE_MODELS takes them; each worker must be able to read them. None: the starter bundles."""
    scorers: tuple[str, ...] | None = None
    """The scorers asked for; None: all but stand-ins."""
    options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    threads: int = 1
    concurrent_batches: int = 1
    device: str = "cpu"
    max_batch_tokens: int | None = None
    redis: str | None = field(default=None, repr=False)
    """The address of a Redis in which workers share known scores."""
    namespace: str = NAMESPACE

    def open(self) -> Engine:
        """Loads the models. Raises BundleError, DeviceError, OptionsError."""
        return Engine(
            choose_bundles(self.models, self.scorers),
            threads=self.threads,
            concurrent_batches=self.concurrent_batches,
            device=self.device,
            options=self.options,
            max_batch_tokens=self.max_batch_tokens,
            shared=None if self.redis is None else _open_redis(self.redis),
            namespace=self.namespace,
        )


def _open_redis(address: str) -> SharedScores:
    from turnscore_service.cache.redis_scores import RedisScores

    return RedisScores(address)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The rest of a run."""

    blocks: Sequence[Block]
    open_engine: Callable[[], Engine]
    """Each worker calls it once, in its process."""
    output: OutputFolder
    on_block: OnBlock
    """The run calls it, in its own process, as each block is committed."""


_NO_TURNS = "encoder"
"""The kind that compares texts: it scores no turn."""


def choose_bundles(models: Sequence[str] | None, scorers: Sequence[str] | None) -> tuple[Path, ...]:
    """The bundles of the scorers asked for: all but stand-ins, or those in `scorers`, in that order.

    `models` are as TURNSCORE_MODELS takes them; None means the starter bundles. Raises BundleError for a scorer without
    a bundle.
    """
    folders = starter_bundles() if models is None else [resolve(each).folder for each in models]
    references = {
        manifest.kind: (folder, manifest.stand_in)
        for folder, manifest in ((each, read_manifest(each)) for each in folders)
        if manifest.kind != _NO_TURNS or models is not None
    }
    meant = [name for name, (_, is_stand_in) in references.items() if not is_stand_in] or list(references)
    for name in scorers or ():
        if name not in references:
            raise BundleError(
                f"--scorers names {name}, for which there is no bundle; there are: {', '.join(references)}"
            )
    return tuple(references[name][0] for name in dict.fromkeys(scorers or meant))


SPARE_CPUS = 3
"""Logical CPUs that the pool leaves to Ray Data's own tasks: a pool that takes all of them waits for ever, without a
word, as soon as anything else asks for one (met with a reader, and with a checkpoint's filter)."""
STALL_SECONDS = 1800.0
"""A block of 1,000 dialogues takes FED some 300 s on one core."""


@dataclass(frozen=True, kw_only=True)
class RayChoice:
    """Where the actors run, and what each takes."""

    address: str | None = None
    """The cluster's address; None for Ray on this machine, for this run."""
    workers: int | None = None
    """Most actors; None for as many as fit. A cluster that grows may be asked for more than fit at the start."""
    cpus_per_worker: int = 1
    gpus_per_worker: float = 0.0
    stall_seconds: float = STALL_SECONDS
    """Seconds without a commit after which the run ends and reports what it waits for."""

    def local_cpus(self) -> int:
        """Logical CPUs of a cluster on this machine."""
        workers = self.workers or max(1, usable_cpus() // self.cpus_per_worker)
        return workers * self.cpus_per_worker + SPARE_CPUS


@dataclass(frozen=True, kw_only=True)
class PoolSize:
    """Actors of the pool: the fewest, the first and the most."""

    least: int
    first: int
    most: int


def size_pool(resources: Mapping[str, float], choice: RayChoice, blocks: int) -> PoolSize:
    """The pool for a cluster of these resources. Raises StoppedError where no actor fits."""
    cpus, gpus = int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
    fit = (cpus - SPARE_CPUS) // choice.cpus_per_worker
    if choice.gpus_per_worker:
        fit = min(fit, int(gpus / choice.gpus_per_worker))
    if fit < 1 and choice.workers is None:
        wanted = f"{choice.cpus_per_worker + SPARE_CPUS} CPUs" + (
            f" and {choice.gpus_per_worker:g} GPUs" if choice.gpus_per_worker else ""
        )
        raise StoppedError(
            f"the cluster has {cpus} CPUs and {gpus:g} GPUs; one worker needs {wanted}, {SPARE_CPUS} of the CPUs for "
            "Ray's own tasks. Give --workers where the cluster will grow"
        )
    most = max(1, min(choice.workers or fit, blocks))
    return PoolSize(least=1, first=max(1, min(fit, most)), most=most)
