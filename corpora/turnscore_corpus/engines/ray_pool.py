"""How many actors a run has on Ray, and what each takes. Computes on numbers; knows nothing of Ray itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnscore_core.inference.devices import usable_cpus

from turnscore_corpus.errors import StoppedError

SPARE_CPUS = 3
"""Logical CPUs that the pool leaves to Ray Data's own tasks: a pool that takes all of them waits for ever, without a
word, as soon as anything else asks for one (met with a reader, and with a checkpoint's filter)."""
STALL_SECONDS = 1800.0
"""Chosen: a block of 1,000 dialogues takes FED some 300 s on one core."""


@dataclass(frozen=True, kw_only=True)
class RayChoice:
    """Where the actors run, and what each takes."""

    address: str | None = None
    """The cluster's address; None for Ray on this machine, for this run alone."""
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
