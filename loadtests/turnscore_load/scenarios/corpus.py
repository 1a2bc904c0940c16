"""Measures what a turn costs each way of scoring a file of dialogues, and compares with the bare runtime.

Each way runs in a process of its own, whose whole tree is watched: CPU seconds and memory, Ray's daemons included.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from turnscore_models import starter_bundles

from turnscore_load.corpus_ways import WAYS, write_dialogues
from turnscore_load.processes import StartError, python_path, run_module
from turnscore_load.results import ScenarioResult, number, table

_LOOK_SECONDS = 1.0
"""Between two looks at the processes. Chosen: reading their memory takes milliseconds."""
LARGE_TURNS = 50_000
"""Of a corpus whose memory over time is worth a line. Chosen."""
_MIB = 2**20
_OBJECT_STORE = "/dev/shm/plasma"  # noqa: S108 where Ray maps it
_WORKER, _DAEMON = "ray::", "/site-packages/ray/"
"""How Ray's workers are called, and where its other programs lie."""
_HOLDERS = {"run": "the run's process", "workers": "Ray's workers", "daemons": "its daemons"}


@dataclass(frozen=True, kw_only=True)
class CorpusCost:
    """One way at one size."""

    way: str
    turns: int
    cpu_seconds: float
    """Of its processes since the models were loaded; where it starts others, all that those took."""
    wall_seconds: float
    tree_cpu_seconds: float
    """Of all its processes from beginning to end."""
    peak_bytes: int
    """Of all its processes together, memory that they share counted once each."""
    tenth_bytes: tuple[int, int]
    """The most in the second and in the last tenth of the CPU seconds."""
    peak_by_holder: dict[str, int]

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per turn."""
        return 1000 * self.cpu_seconds / self.turns


def main(
    turns: Annotated[str, typer.Option(help="System turns, sizes separated by commas.")] = "10000",
    ways: Annotated[str, typer.Option(help="Ways, separated by commas.")] = ",".join(WAYS),
    rounds: Annotated[int, typer.Option(help="How often each way is run, in turn; the median counts.", min=1)] = 1,
    output: Annotated[Path, typer.Option(help="Folder for corpora and outputs.")] = Path("build/bench-corpus"),
    plot: Annotated[Path | None, typer.Option(help="SVG of the cost by size.")] = None,
) -> ScenarioResult:
    """Measure the ways at each size."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    found = []
    for size in map(int, turns.split(",")):
        source = output / f"dialogues-{size}.jsonl"
        write_dialogues(source, size)
        runs: dict[str, list[CorpusCost]] = {way: [] for way in ways.split(",")}
        for _ in range(rounds):  # a round has all ways, so that what changes on the machine meets them alike
            for way, costs in runs.items():
                costs.append(measure(way, source, output / f"{way}-{source.stem}-{time.time_ns()}", bundle))
                typer.echo(f"{way}, {costs[-1].turns} turns: {costs[-1].cpu_ms:.2f} ms of CPU per turn", err=True)
        found += [sorted(costs, key=lambda one: one.cpu_seconds)[len(costs) // 2] for costs in runs.values()]
    if plot is not None:
        draw(found, plot)
    return ScenarioResult(scenario="corpus", parts=[cost_table(found), *memory_lines(found)], data=found)


def measure(way: str, source: Path, output: Path, bundle: Path) -> CorpusCost:
    """Runs the way and watches its processes."""
    command = run_module("turnscore_load.corpus_ways", way, source, output, bundle)
    environment = {**os.environ, **python_path(), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        tree = WatchedTree(process.pid)
        while process.poll() is None:
            tree.look()
            time.sleep(_LOOK_SECONDS)  # another process's memory changes without a word
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise StartError(f"{way} ended with {process.returncode}")
    said = json.loads(lines[-1])
    _, fullest = max(tree.looks, key=lambda look: sum(look[1].values()))
    return CorpusCost(
        way=way, turns=said["turns"], wall_seconds=said["wall_seconds"], tree_cpu_seconds=tree.cpu_seconds,
        cpu_seconds=tree.cpu_seconds if said["cpu_seconds"] is None else said["cpu_seconds"],
        peak_bytes=sum(fullest.values()), peak_by_holder=fullest,
        tenth_bytes=(tree.most_bytes_in_tenth(1), tree.most_bytes_in_tenth(9)),
    )  # fmt: skip


@dataclass(slots=True)
class WatchedTree:
    """The looks at one process and its children: CPU seconds so far, and bytes by who holds them.

    Memory that processes share counts once. Holders are `run`, the process itself and what it began, Ray's `workers`,
    its `daemons` and its `object store`.
    """

    pid: int
    looks: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    _cpu_seconds: dict[tuple[int, float], float] = field(default_factory=dict)

    def look(self) -> None:
        """Notes each process's CPU seconds so far and its memory."""
        try:
            own = psutil.Process(self.pid)
            tree = [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        held: dict[str, int] = {}
        for each in tree:
            try:
                times = each.cpu_times()
                self._cpu_seconds[each.pid, each.create_time()] = times.user + times.system
                for holder, size in _memory_of(each).items():
                    held[holder] = held.get(holder, 0) + size
            except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
                continue
        self.looks.append((self.cpu_seconds, held))

    @property
    def cpu_seconds(self) -> float:
        """Of all processes that were seen."""
        return sum(self._cpu_seconds.values())

    def most_bytes_in_tenth(self, tenth: int) -> int:
        """The most that was held in that tenth of the CPU seconds, from 0."""
        first, last = (self.cpu_seconds * each / 10 for each in (tenth, tenth + 1))
        return max((sum(held.values()) for cpu, held in self.looks if first <= cpu <= last), default=0)


def _memory_of(process: psutil.Process) -> dict[str, int]:
    size = process.memory_full_info().pss
    command = process.cmdline()
    if command and command[0].startswith(_WORKER):
        return {"workers": size}
    if process.name() != "raylet":
        return {"daemons" if any(_DAEMON in word for word in command) else "run": size}
    store = sum(each.pss for each in process.memory_maps() if each.path.startswith(_OBJECT_STORE))
    return {"daemons": size - store, "object store": store}


def cost_table(found: Sequence[CorpusCost]) -> str:
    """A row for each way at each size, with the ratio to the bare runtime of that size."""
    bare = {each.turns: each.cpu_ms for each in found if each.way == "bare"}
    rows = [
        [
            WAYS[each.way][0],
            number(each.turns),
            number(each.turns / each.wall_seconds),
            number(each.cpu_ms, 2),
            number(each.cpu_ms / bare[each.turns] if each.turns in bare else None, 2),
            number(1000 * each.tree_cpu_seconds / each.turns, 2),
            number(each.peak_bytes / _MIB),
        ]
        for each in sorted(found, key=lambda each: (each.turns, list(WAYS).index(each.way)))
    ]
    head = ["way", "turns", "turns per second", "CPU ms per turn", "over bare", "with its start", "memory, MiB"]
    return table(head, rows, texts=1)


def memory_lines(found: Sequence[CorpusCost]) -> list[str]:
    """What the runs over large corpora held at different times, and who held it; nothing without such a run."""
    lines = []
    for each in found:
        if each.turns < LARGE_TURNS or not each.peak_by_holder:
            continue
        second, last = (number(size / _MIB) for size in each.tenth_bytes)
        held = ", ".join(
            f"{_HOLDERS.get(name, f'its {name}')} {number(size / _MIB) if size >= _MIB else 'less than 1'} MiB"
            for name, size in each.peak_by_holder.items()
        )
        lines.append(
            f"- {WAYS[each.way][0]}, {number(each.turns)} turns: {second} MiB at most in the second tenth of its CPU "
            f"time, {last} in the last. At its peak: {held}."
        )
    return ["Memory over time:", "\n".join(lines)] if lines else []


def draw(found: Sequence[CorpusCost], path: Path) -> None:
    """CPU seconds of a corpus by its turns, a line for each way; the same figures give the same bytes."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "turnscore"
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel: Any = figure.subplots()
    for way in dict.fromkeys(each.way for each in found):
        points = sorted((each.turns, each.cpu_seconds) for each in found if each.way == way)
        panel.plot([x for x, _ in points], [y for _, y in points], marker="o", label=WAYS[way][0].replace("`", ""))
    panel.set(xscale="log", yscale="log", xlabel="system turns", ylabel="CPU seconds")
    panel.legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})
