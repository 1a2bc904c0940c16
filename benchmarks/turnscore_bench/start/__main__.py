"""`make bench-start`: seconds from a start to the first score, and the CPU seconds of it, in alternating rounds.

With all starter models; asks on 127.0.0.1 only.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Annotated

import httpx
import typer
from turnscore_load.address import LOOPBACK, free_port

from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.page import table
from turnscore_bench.harness.processes import Server

WAYS: Mapping[str, Mapping[str, str]] = {
    "threads measured": {},
    "one thread, as the chart says": {"TURNSCORE_RUNTIME__THREADS": "1", "TURNSCORE_RUNTIME__CONCURRENT_BATCHES": "1"},
}


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: what it took by the clock and on the CPUs until the first score."""

    live_seconds: float
    score_seconds: float
    cpu_seconds: float


def bench_start(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's turnscore.")],
    before: Annotated[Path | None, typer.Option(help="The same of another version, to compare with.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    output: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("build/bench-start"),
) -> None:
    """Measure, and print a row for each way with the medians of its rounds, shortest and longest in brackets."""
    folders = {"": serving} if before is None else {"before, ": before, "after, ": serving}
    ways = {said + way: (folder, WAYS[way]) for way in WAYS for said, folder in folders.items()}
    found: dict[str, list[Start]] = {name: [] for name in ways}
    busy = os.getloadavg()[0]
    for number in range(rounds):
        for name, (folder, environment) in ways.items():
            found[name].append(measure_start(folder / "turnscore", output.resolve() / str(number), environment))
    typer.echo(report(found, busy))


def measure_start(turnscore: Path, folder: Path, environment: Mapping[str, str]) -> Start:
    """Starts the service, asks it for one score by the default scorers as soon as it is ready, and stops it."""
    port = free_port()
    own = {"TURNSCORE_HTTP__PORT": str(port), "TURNSCORE_GRPC__PORT": "0", "BENTOML_HOME": str(folder / "bentoml")}
    begun = monotonic()
    server = Server([str(turnscore), "serve"], folder, {**own, **environment}, port)
    try:
        server.wait_until_ready("/livez")
        live = monotonic() - begun
        server.wait_until_ready("/readyz")
        answer = httpx.post(f"http://{LOOPBACK}:{port}/v1/score", json={"response": "I like it."}, timeout=60)
        answer.raise_for_status()
        return Start(live_seconds=live, score_seconds=monotonic() - begun, cpu_seconds=server.cpu_seconds())
    finally:
        server.stop()


def report(found: Mapping[str, list[Start]], busy: float) -> str:
    """The table that `make bench-start` prints."""
    rounds = max(map(len, found.values()))
    machine = describe(os.cpu_count() or 1)
    where = f"{datetime.now(UTC):%Y-%m-%d}, {machine}, load average {busy:.1f} before; {rounds} rounds"
    rows = []
    for name, starts in found.items():
        columns = (
            [each.live_seconds for each in starts],
            [each.score_seconds for each in starts],
            [each.cpu_seconds for each in starts],
        )
        rows.append([name, *map(_spread, columns)])
    head = ["start", "listens after", "first score after", "CPU seconds until then"]
    return f"{where}\n\n{table(head, rows, texts=len(head))}"


def _spread(seconds: list[float]) -> str:
    return f"{median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


if __name__ == "__main__":
    typer.run(bench_start)
