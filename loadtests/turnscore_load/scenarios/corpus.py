"""Measures what a turn costs each way of scoring a file of dialogues, and compares with the bare runtime.

Each way runs in a process of its own, whose whole tree is watched: CPU seconds and memory, Ray's daemons included.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer
from turnscore_models import starter_bundles
from typer import Option

from turnscore_load.corpus_ways import WAYS, write_dialogues
from turnscore_load.processes import Process, StartError, python_path, run_module, started
from turnscore_load.results import number, table
from turnscore_load.scenario import Scenario

_LOOK_SECONDS = 1.0  # between two looks at the processes; chosen: reading their memory takes milliseconds
LARGE_TURNS = 50_000  # of a corpus whose memory over time is worth a line; chosen
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class CorpusCost:
    """One way at one size. The CPU seconds count since the models were loaded, where it starts no other processes."""

    way: str
    turns: int
    cpu_seconds: float
    wall_seconds: float
    tree_cpu_seconds: float  # of all its processes from beginning to end
    peak_bytes: int  # of all its processes together, memory that they share counted once
    tenth_bytes: tuple[int, int]  # the most in the second and in the last tenth of the CPU seconds

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu_seconds / self.turns  # per turn


@dataclass(kw_only=True)
class Corpus(Scenario[list[CorpusCost]]):
    """Measure the ways at each size."""

    turns: Annotated[str, Option(help="System turns, sizes separated by commas.")] = "10000"
    ways: Annotated[str, Option(help="Ways, separated by commas.")] = ",".join(WAYS)
    rounds: Annotated[int, Option(help="How often each way is run, in turn; the median counts.", min=1)] = 1

    def measure(self) -> list[CorpusCost]:
        self.folder.mkdir(parents=True, exist_ok=True)
        bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
        found = []
        for size in map(int, self.turns.split(",")):
            source = self.folder / f"dialogues-{size}.jsonl"
            write_dialogues(source, size)
            runs: dict[str, list[CorpusCost]] = {way: [] for way in self.ways.split(",")}
            for _ in range(self.rounds):  # a round has all ways, so that what changes on the machine meets them alike
                for way, costs in runs.items():
                    costs.append(measure(way, source, self.folder / f"{way}-{source.stem}-{time.time_ns()}", bundle))
                    typer.echo(f"{way}, {costs[-1].turns} turns: {costs[-1].cpu_ms:.2f} ms of CPU per turn", err=True)
            found += [sorted(costs, key=lambda one: one.cpu_seconds)[len(costs) // 2] for costs in runs.values()]
        return found

    def report(self, found: list[CorpusCost]) -> Iterator[str]:
        """A row for each way at each size, with the ratio to the bare runtime of that size."""
        bare = {each.turns: each.cpu_ms for each in found if each.way == "bare"}
        rows = []
        for each in sorted(found, key=lambda each: (each.turns, list(WAYS).index(each.way))):
            over_bare = each.cpu_ms / bare[each.turns] if each.turns in bare else None
            rates = [number(each.turns), number(each.turns / each.wall_seconds), number(each.cpu_ms, 2)]
            tree = [number(1000 * each.tree_cpu_seconds / each.turns, 2), number(each.peak_bytes / _MIB)]
            rows.append([WAYS[each.way][0], *rates, number(over_bare, 2), *tree])
        head = ["way", "turns", "turns per second", "CPU ms per turn", "over bare", "with its start", "memory, MiB"]
        yield table(head, rows, texts=1)
        for each in found:
            if each.turns >= LARGE_TURNS:
                second, last = (number(size / _MIB) for size in each.tenth_bytes)
                yield (
                    f"{WAYS[each.way][0]}, {number(each.turns)} turns: {second} MiB at most in the second tenth of its "
                    f"CPU time, {last} in the last."
                )


def measure(way: str, source: Path, output: Path, bundle: Path) -> CorpusCost:
    """Runs the way and looks at its processes again and again."""
    command = run_module("turnscore_load.corpus_ways", way, source, output, bundle)
    environment = {**python_path(), "OMP_NUM_THREADS": "1"}
    cpu_seconds: dict[tuple[int, float], float] = {}
    looks: list[tuple[float, int]] = []
    with started(Process(command, source.parent, environment=environment, talks=True)) as process:
        while tree := process.tree():
            held = 0
            for each in tree:
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
                    times = each.cpu_times()
                    cpu_seconds[each.pid, each.create_time()] = times.user + times.system
                    held += each.memory_full_info().pss
            looks.append((sum(cpu_seconds.values()), held))
            time.sleep(_LOOK_SECONDS)  # another process's memory changes without a word
        if process.process.returncode:
            raise StartError(f"{way} ended with {process.process.returncode}: {process.log_end()}")
        said = json.loads(process.process.stdout.read().splitlines()[-1])
    total = sum(cpu_seconds.values())

    def most_in_tenth(tenth: int) -> int:
        return max((held for cpu, held in looks if tenth <= 10 * cpu / total <= tenth + 1), default=0)

    return CorpusCost(
        way=way, turns=said["turns"], wall_seconds=said["wall_seconds"], tree_cpu_seconds=total,
        cpu_seconds=total if said["cpu_seconds"] is None else said["cpu_seconds"],
        peak_bytes=max(held for _, held in looks), tenth_bytes=(most_in_tenth(1), most_in_tenth(9)),
    )  # fmt: skip
