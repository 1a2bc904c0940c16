"""`make bench-corpus`: what a turn costs each way of scoring a file, at the sizes that are asked. Prints Markdown.

Each way runs in a process of its own, whose whole tree is watched: CPU seconds and memory, Ray's daemons included.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer
from turnscore_models import starter_bundles
from turnscore_service.inference.cpu_budget import usable_cpus

from turnscore_bench.corpus.dialogues import write_dialogues
from turnscore_bench.corpus.plot import draw_costs
from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.page import markers, number, table, write_between_markers

MARKERS = markers("make bench-corpus")
_LOOK_SECONDS = 1.0
"""Between two looks at the processes. Chosen: reading their memory takes milliseconds."""
WAYS = ("bare", "engine", "local", "ray", "map_batches", "door")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One way at one size."""

    way: str
    caption: str
    turns: int
    cpu_seconds: float
    """Of its processes since the models were loaded; where it starts others, all that those took."""
    wall_seconds: float
    tree_cpu_seconds: float
    """Of all its processes from beginning to end."""
    peak_bytes: int
    """Of all its processes together, memory that they share counted once each."""

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds a turn."""
        return 1000 * self.cpu_seconds / self.turns


def main(
    turns: Annotated[str, typer.Option(help="System turns, sizes separated by commas.")] = "10000",
    ways: Annotated[str, typer.Option(help="Ways, separated by commas.")] = ",".join(WAYS),
    output: Annotated[Path, typer.Option(help="Folder for corpora, outputs and JSON.")] = Path("build/bench-corpus"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose table is written anew.")] = None,
    plot: Annotated[Path | None, typer.Option(help="SVG of the cost by size.")] = None,
) -> None:
    """Measure the ways at each size and print them beside the bare runtime."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    results = output / "results.json"
    found = [Measured(**each) for each in json.loads(results.read_text())] if results.exists() else []
    for size in map(int, turns.split(",")):
        source = output / f"dialogues-{size}.jsonl"
        write_dialogues(source, size)
        for way in ways.split(","):
            one = measure(way, source, output / f"{way}-{size}-{time.time_ns()}", bundle)
            found = [each for each in found if (each.way, each.turns) != (one.way, one.turns)] + [one]
            results.write_text(json.dumps([asdict(each) for each in found], indent=1))
            typer.echo(f"{way}, {one.turns} turns: {one.cpu_ms:.2f} ms of CPU a turn", err=True)
    text = f"{tabulate(found)}\n\n{describe(usable_cpus())}, {datetime.now(UTC).date().isoformat()}."
    typer.echo(text)
    if write_page is not None:
        write_between_markers(write_page, text, MARKERS)
    if plot is not None:
        draw_costs([(each.caption, each.turns, each.cpu_ms) for each in found], plot)


def measure(way: str, source: Path, output: Path, bundle: Path) -> Measured:
    """Runs the way and watches its processes."""
    command = [sys.executable, "-m", "turnscore_bench.corpus.way", way, str(source), str(output), str(bundle)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        seen: dict[tuple[int, float], float] = {}
        peak = 0
        while process.poll() is None:
            peak = max(peak, _look(process.pid, seen))
            time.sleep(_LOOK_SECONDS)
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise typer.Exit(process.returncode)
    said = json.loads(lines[-1])
    own = said["cpu_seconds"]
    return Measured(
        way=way,
        caption=said["caption"],
        turns=said["turns"],
        cpu_seconds=own if own is not None else sum(seen.values()),
        wall_seconds=said["wall_seconds"],
        tree_cpu_seconds=sum(seen.values()),
        peak_bytes=peak,
    )


def tabulate(found: list[Measured]) -> str:
    """A row for each way at each size, beside the bare runtime of that size."""
    bare = {each.turns: each.cpu_ms for each in found if each.way == "bare"}
    rows = [
        [
            each.caption,
            number(each.turns, 0),
            number(each.turns / each.wall_seconds, 0),
            number(each.cpu_ms, 2),
            number(each.cpu_ms / bare[each.turns] if each.turns in bare else None, 2),
            number(1000 * each.tree_cpu_seconds / each.turns, 2),
            number(each.peak_bytes / 2**20, 0),
        ]
        for each in sorted(found, key=lambda each: (each.turns, WAYS.index(each.way)))
    ]
    head = ["way", "turns", "turns per second", "CPU ms per turn", "over bare", "with its start", "memory, MiB"]
    return table(head, rows, texts=1)


def _look(pid: int, seen: dict[tuple[int, float], float]) -> int:
    """Notes each process's CPU seconds so far; the memory of all of them."""
    memory = 0
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for each in tree:
        try:
            times, key = each.cpu_times(), (each.pid, each.create_time())
            seen[key] = times.user + times.system
            memory += each.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
            continue
    return memory


if __name__ == "__main__":
    typer.run(main)
