"""Where a run's work is done: on this machine's processes, or on Ray, which is imported only if it is asked for."""

from functools import partial

import typer

from turnscore_corpus.commands.run import RunElsewhere
from turnscore_corpus.engines.ray_pool import RayChoice

ENGINES = ("local", "ray")


def choose_elsewhere(engine: str, address: str | None, workers: int | None, device: str) -> RunElsewhere | None:
    """What does the work of that engine; None for this machine's processes. Raises a usage error for what is missing.

    On a CUDA device each worker takes one GPU.
    """
    if engine == "local":
        if address is not None:
            raise typer.BadParameter("needs --engine ray", param_hint="--address")
        return None
    try:
        from turnscore_corpus.engines.ray_engine import run_on_ray
    except ImportError as error:
        raise typer.BadParameter(
            f"ray cannot be imported ({error}); install turnscore-corpus with the extra `ray`", param_hint="--engine"
        ) from None
    gpus = 1.0 if device.startswith("cuda") else 0.0
    return partial(run_on_ray, RayChoice(address=address, workers=workers, gpus_per_worker=gpus))
