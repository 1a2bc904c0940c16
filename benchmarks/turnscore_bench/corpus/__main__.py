"""`make bench-corpus`: what a turn costs each way of scoring a file, at the sizes that are asked. Prints Markdown.

Each way runs in a process of its own, whose whole tree is watched: CPU seconds and memory, Ray's daemons included.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import starter_bundles

from turnscore_bench.corpus.dialogues import write_dialogues
from turnscore_bench.corpus.plot import draw_costs
from turnscore_bench.corpus.watched_tree import WatchedTree
from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.page import markers, number, table, write_between_markers

MARKERS = markers("make bench-corpus")
_LOOK_SECONDS = 1.0
"""Between two looks at the processes. Chosen: reading their memory takes milliseconds."""
WAYS = ("bare", "engine", "local", "processes", "ray", "map_batches", "door")
LARGE_TURNS = 50_000
"""Of a corpus whose memory over time is worth a line. Chosen."""
_MIB = 2**20


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
    tenth_bytes: tuple[int, int] = (0, 0)
    """The most in the second and in the last tenth of the CPU seconds."""
    peak_by_holder: dict[str, int] = field(default_factory=dict)
    """Who held the peak, as WatchedTree says."""

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per turn."""
        return 1000 * self.cpu_seconds / self.turns


def main(
    turns: Annotated[str, typer.Option(help="System turns, sizes separated by commas.")] = "10000",
    ways: Annotated[str, typer.Option(help="Ways, separated by commas.")] = ",".join(WAYS),
    rounds: Annotated[int, typer.Option(help="How often each way is run, in turn; the median counts.", min=1)] = 1,
    output: Annotated[Path, typer.Option(help="Folder for corpora, outputs and JSON.")] = Path("build/bench-corpus"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose table is written anew.")] = None,
    plot: Annotated[Path | None, typer.Option(help="SVG of the cost by size.")] = None,
) -> None:
    """Measure the ways at each size and print them beside the bare runtime."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    results = output / "results.json"
    found = [Measured(**each) for each in json.loads(results.read_text())] if results.exists() else []
    for size in map(int, turns.split(",")):
        source = output / f"dialogues-{size}.jsonl"
        write_dialogues(source, size)
        for one in measure_in_turn(ways.split(","), rounds, source, output):
            found = [each for each in found if (each.way, each.turns) != (one.way, one.turns)] + [one]
            results.write_text(json.dumps([asdict(each) for each in found], indent=1))
    described = f"{describe(usable_cpus())}, {datetime.now(UTC).date().isoformat()}."
    text = "\n\n".join([tabulate(found), *say_memory(found), described])
    typer.echo(text)
    if write_page is not None:
        write_between_markers(write_page, text, MARKERS)
    if plot is not None:
        draw_costs([(each.caption, each.turns, each.cpu_ms) for each in found], plot)


def measure_in_turn(ways: list[str], rounds: int, source: Path, output: Path) -> Iterator[Measured]:
    """After each run the way's run of median CPU seconds so far.

    A round has all ways, so that what changes on the machine meets them alike.
    """
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    runs: dict[str, list[Measured]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            one = measure(way, source, output / f"{way}-{source.stem}-{time.time_ns()}", bundle)
            runs[way].append(one)
            typer.echo(f"{way}, {one.turns} turns: {one.cpu_ms:.2f} ms of CPU per turn", err=True)
            yield sorted(runs[way], key=lambda one: one.cpu_seconds)[len(runs[way]) // 2]


def measure(way: str, source: Path, output: Path, bundle: Path) -> Measured:
    """Runs the way and watches its processes."""
    command = [sys.executable, "-m", "turnscore_bench.corpus.way", way, str(source), str(output), str(bundle)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        tree = WatchedTree(process.pid)
        while process.poll() is None:
            tree.look()
            time.sleep(_LOOK_SECONDS)  # another process's memory changes without a word
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
        cpu_seconds=own if own is not None else tree.cpu_seconds,
        wall_seconds=said["wall_seconds"],
        tree_cpu_seconds=tree.cpu_seconds,
        peak_bytes=tree.fullest.bytes,
        tenth_bytes=(tree.most_bytes_in_tenth(1), tree.most_bytes_in_tenth(9)),
        peak_by_holder=tree.fullest.bytes_by_holder,
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
            _mib(each.peak_bytes),
        ]
        for each in sorted(found, key=lambda each: (each.turns, WAYS.index(each.way)))
    ]
    head = ["way", "turns", "turns per second", "CPU ms per turn", "over bare", "with its start", "memory, MiB"]
    return table(head, rows, texts=1)


def say_memory(found: list[Measured]) -> list[str]:
    """What the runs over large corpora held at different times, and who held it; nothing without such a run."""
    lines = [
        f"- {each.caption}, {number(each.turns, 0)} turns: {_mib(each.tenth_bytes[0])} MiB at most in the second tenth "
        f"of its CPU time, {_mib(each.tenth_bytes[1])} in the last. At its peak: {_say_holders(each.peak_by_holder)}."
        for each in sorted(found, key=lambda each: (each.turns, WAYS.index(each.way)))
        if each.turns >= LARGE_TURNS and each.peak_by_holder
    ]
    return ["Memory over time:", "\n".join(lines)] if lines else []


def _say_holders(held: dict[str, int]) -> str:
    names = {"run": "the run's process", "workers": "Ray's workers", "daemons": "its daemons"}
    return ", ".join(
        f"{names.get(name, f'its {name}')} {_mib(size) if size >= _MIB else 'less than 1'} MiB"
        for name, size in held.items()
    )


def _mib(size: int) -> str:
    return number(size / _MIB, 0)


if __name__ == "__main__":
    typer.run(main)
