"""Where a run's work is done: in processes of this machine, or on Ray, which is imported only if it is asked for."""

from functools import partial

import typer

from turnscore_corpus.commands.run import RunElsewhere
from turnscore_corpus.engines.ray_pool import RayChoice

ENGINES = ("local", "ray")


def choose_elsewhere(engine: str, address: str | None, workers: int | None, device: str) -> RunElsewhere | None:
    """The engine's function; None for processes of this machine. Raises a usage error if Ray or an option is missing.

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
