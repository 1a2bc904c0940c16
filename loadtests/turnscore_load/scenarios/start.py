"""Measures seconds from a start to the first score, and the CPU seconds of it, in alternating rounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import httpx
from typer import Option

from turnscore_load.processes import started
from turnscore_load.results import in_turn, spread, table
from turnscore_load.scenario import Scenario
from turnscore_load.services import ONE_BATCH_AT_A_TIME, service_process

WAYS: Mapping[str, Mapping[str, str]] = {"threads measured": {}, "one thread, as the chart says": ONE_BATCH_AT_A_TIME}


@dataclass(kw_only=True)
class Start(Scenario[dict[str, list[tuple[float, float, float]]]]):
    """Start the service with all starter models, ask it for a score as soon as it is ready, and stop it."""

    before: Annotated[Path | None, Option(help="--serving of another version, to compare with.")] = None
    rounds: Annotated[int, Option(min=1)] = 5

    def measure(self) -> dict[str, list[tuple[float, float, float]]]:
        programs = {"": self.serving} if self.before is None else {"before, ": self.before, "after, ": self.serving}
        ways = {said + way: (folder, WAYS[way]) for way in WAYS for said, folder in programs.items()}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for number, name in in_turn(ways, self.rounds):
            folder, settings = ways[name]
            found[name].append(measure_start(folder / "turnscore", self.folder / str(number), settings))
        return found

    def report(self, found: dict[str, list[tuple[float, float, float]]]) -> Iterator[str]:
        rows = [[name, *(f"{spread(column)} s" for column in zip(*took, strict=True))] for name, took in found.items()]
        yield f"{self.rounds} rounds"
        yield table(["start", "listens after", "first score after", "CPU seconds until then"], rows)


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
