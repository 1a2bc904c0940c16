"""Measures seconds from a start to the first score, and the CPU seconds of it, in alternating rounds."""

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Annotated

import httpx
import typer

from turnscore_load.processes import started
from turnscore_load.results import ScenarioResult, in_turn, spread, table
from turnscore_load.services import BENTOML, ONE_BATCH_AT_A_TIME, service_process

WAYS: Mapping[str, Mapping[str, str]] = {"threads measured": {}, "one thread, as the chart says": ONE_BATCH_AT_A_TIME}


def main(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's programs.")] = BENTOML.parent,
    before: Annotated[Path | None, typer.Option(help="The same of another version, to compare with.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    output: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("build/bench-start"),
) -> ScenarioResult:
    """Start the service with all starter models, ask it for a score as soon as it is ready, and stop it."""
    folders = {"": serving} if before is None else {"before, ": before, "after, ": serving}
    ways = {said + way: (folder, WAYS[way]) for way in WAYS for said, folder in folders.items()}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for number, name in in_turn(ways, rounds):
        folder, settings = ways[name]
        found[name].append(measure_start(folder / "turnscore", output.resolve() / str(number), settings))
    head = ["start", "listens after", "first score after", "CPU seconds until then"]
    rows = [[name, *(f"{spread(column)} s" for column in zip(*took, strict=True))] for name, took in found.items()]
    return ScenarioResult(scenario="start", parts=[f"{rounds} rounds", table(head, rows)], data=found)


def measure_start(serve: Path, folder: Path, settings: Mapping[str, str]) -> tuple[float, float, float]:
    """Seconds until it listens and until its first score, and the CPU seconds until then."""
    process = service_process(serve, folder, settings, clean=True)
    process.ready = "/livez"
    begun = monotonic()
    with started(process):
        live = monotonic() - begun
        process.wait_until_ready("/readyz")
        httpx.post(f"{process.url}/v1/score", json={"response": "I like it."}, timeout=60).raise_for_status()
        return live, monotonic() - begun, process.cpu_seconds()
