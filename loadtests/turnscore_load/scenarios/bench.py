"""Measures turnscore, the bare runtime and plain BentoML on the same model, in one run of alternating rounds.

BentoML is installed from PyPI into an environment of its own.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from turnscore_load.contenders import (
    VERSIONS,
    BareProcess,
    Contender,
    EngagementRows,
    bentoml_contenders,
    turnscore_contenders,
)  # fmt: skip
from turnscore_load.generator import Job, drive
from turnscore_load.machine import usable_cpus
from turnscore_load.processes import StartError
from turnscore_load.results import not_run, number, percentile, rotate, table
from turnscore_load.scenario import Scenario
from turnscore_load.traffic import LENGTH_MIXES, LengthMix

BARE = "bare"
_CHECKED_TURNS = 16
_WARM_UP_TURNS = 32
_WARM_UP_CLIENTS = 16
_SEARCH_TURNS = 120
_TOLERANCE = 1e-4  # how far an answer may be from the bare runtime's
_SINGLE_TURNS = 100
# Of a measurement with batches; beyond it 128 clients with batches of 16 would take minutes.
_MOST_BATCHED_TURNS = 2048


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One contender in one round, with one mix of lengths and one number of clients; the bare runtime has 0 clients."""

    contender: str
    mix: str
    clients: int
    turns: int  # answered
    wall_seconds: float
    cpu_seconds: float  # of the server's process tree
    client_cpu_seconds: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    refused: int = 0  # requests that were refused and came again
    failed: int = 0
    first_error: str = ""


Cell = Mapping[str, float]  # medians over the rounds, by the names of MEASURES
MEASURES: Mapping[str, Callable[[Measurement], float]] = {
    "cpu_ms": lambda each: 1000 * each.cpu_seconds / each.turns,  # per turn, which are CPU seconds per 1,000 turns
    "wall_ms": lambda each: 1000 * each.wall_seconds / each.turns,
    "turns_per_second": lambda each: each.turns / each.wall_seconds,
    "p50_ms": lambda each: each.p50_ms,
    "p99_ms": lambda each: each.p99_ms,
    "client_share": lambda each: each.client_cpu_seconds / max(each.client_cpu_seconds + each.cpu_seconds, 1e-9),
    "refused": lambda each: each.refused,
    "failed": lambda each: each.failed,
}


@dataclass(kw_only=True)
class ServerComparison:
    """Everything that one run measured, and what it could not."""

    labels: dict[str, str] = field(default_factory=dict)  # the contenders by key, in the order of the tables
    measurements: list[Measurement] = field(default_factory=list)
    bare_plans: dict[str, Any] = field(default_factory=dict)
    # Of a batch of one, by mix, a number per round.
    bare_single_p50_ms: dict[str, list[float]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def mixes(self) -> list[str]:
        return list(dict.fromkeys(each.mix for each in self.measurements))

    def rounds(self) -> int:
        """How many rounds were measured, of the mix that was measured most often."""
        return max(Counter(each.mix for each in self.measurements if each.contender == BARE).values(), default=0)

    def clients(self) -> list[int]:
        return sorted({each.clients for each in self.measurements if each.contender != BARE})

    def cell(self, contender: str, mix: str, clients: int = 0) -> Cell | None:
        """The medians of one contender in one condition; None where it was not measured."""
        condition = (contender, mix, clients)
        found = [e for e in self.measurements if (e.contender, e.mix, e.clients) == condition and e.turns]
        return {name: median(map(measure, found)) for name, measure in MEASURES.items()} if found else None

    def served_over_bare(self, contender: str, mix: str, clients: int) -> float | None:
        """CPU seconds per turn, over those of the bare runtime in ideal batches."""
        served, bare = self.cell(contender, mix, clients), self.cell(BARE, mix)
        return served["cpu_ms"] / bare["cpu_ms"] if served and bare else None

    def throughput_over(self, contender: str, other: str, mix: str, clients: int) -> float | None:
        """Turns per second, over another contender's."""
        mine, theirs = self.cell(contender, mix, clients), self.cell(other, mix, clients)
        return theirs["wall_ms"] / mine["wall_ms"] if mine and theirs else None

    def latency_above_bare(self, contender: str, mix: str) -> float | None:
        """Milliseconds that the median answer to one client takes longer than the bare runtime's batch of one."""
        served, bare = self.cell(contender, mix, 1), self.bare_single_p50_ms.get(mix)
        return served["p50_ms"] - median(bare) if served and bare else None


def turns_for(turns: int, mix: LengthMix, clients: int, turns_per_request: int = 1) -> int:
    """Turns of a measurement: whole requests, some for each client; fewer for one client, who takes longer for them."""
    wanted = turns * mix.turns_factor / (4 if clients == 1 else 1)
    in_flight = clients * turns_per_request
    least = 3 * in_flight if turns_per_request == 1 else max(in_flight, min(2 * in_flight, _MOST_BATCHED_TURNS))
    return -(-round(max(wanted, least)) // turns_per_request) * turns_per_request


@dataclass(kw_only=True)
class Bench(Scenario[ServerComparison]):
    """Measure CPU and wall seconds per 1,000 turns, alternating; `--rounds 2 --mixes mixed --clients 1,32` is short."""

    rounds: Annotated[int, Option(min=1)] = 3
    turns: Annotated[int, Option(min=50, help="Mixed turns a measurement.")] = 300
    clients: Annotated[str, Option(help="Numbers of clients.")] = "1,8,32,128"
    mixes: Annotated[str, Option(help="Mixes of lengths: short, mixed, long.")] = "short,mixed,long"
    only: Annotated[str, Option(help="Keys of the contenders to measure; all when empty.")] = ""

    def measure(self) -> ServerComparison:
        run = _Run(self)
        try:
            run.measure()
        finally:
            run.stop()
        return run.found

    def report(self, found: ServerComparison) -> Iterator[str]:
        yield f"{VERSIONS}. Medians of {found.rounds()} rounds."
        yield f"### Ratios\n\n{ratios(found)}"
        for name in found.mixes():
            mix = LENGTH_MIXES[name]
            yield f"### {name.capitalize()}: {mix.least} to {mix.most} tokens per turn"
            yield _mix_table(found, name)
        yield f"### What could not be run\n\n{not_run(found.not_run)}"


class _Run:
    """The contenders, of which only the one that is measured runs: the others are paused."""

    def __init__(self, options: Bench) -> None:
        folder, self._options, self._rows = options.folder, options, EngagementRows()
        self.found = ServerComparison()
        self._mixes = [LENGTH_MIXES[each] for each in options.mixes.split(",")]
        only = options.only.split(",")
        contenders = turnscore_contenders(options.service("turnscore", self._rows.settings))
        if any(not each.startswith("turnscore") for each in only):
            contenders += bentoml_contenders(folder, self._rows)
        self._contenders = [each for each in contenders if not options.only or each.key in only]
        self._bare = BareProcess(options.serving / "python", self._rows, usable_cpus(), folder)

    def stop(self) -> None:
        self._bare.process.stop()
        for contender in self._contenders:
            contender.server.stop()

    def measure(self) -> None:
        """Every contender that can be, round after round, each round begun by another one."""
        for mix in self._mixes:
            searched = self._rows.traffic.items(mix, round(_SEARCH_TURNS * mix.turns_factor))
            plan = self.found.bare_plans[mix.name] = self._bare.order("find_best", mix.name, searched)
            typer.echo(f"bare runtime, {mix.name}: best with {plan['best']}")
        entered = [each for each in self._contenders if self._enters(each)]
        for round_ in range(self._options.rounds):
            for mix in self._mixes:
                self._measure_bare(mix)
                for clients in map(int, self._options.clients.split(",")):
                    typer.echo(f"round {round_ + 1} of {self._options.rounds}: {mix.name}, {clients} clients")
                    for contender in rotate(entered, round_):
                        self._measure(contender, mix, clients)

    def _enters(self, contender: Contender) -> bool:
        """Whether it starts, answers rightly and takes a few turns of each mix; else `found` has the reason."""
        typer.echo(f"starting {contender.label}")
        try:
            contender.prepare()
            if not contender.server.is_running:
                contender.server.start()
            self._check(contender)
            for mix in self._mixes:
                items = self._rows.traffic.items(mix, _WARM_UP_TURNS * contender.turns_per_request)
                _drive(contender, items, _WARM_UP_CLIENTS)
        except StartError as error:
            self.found.not_run[contender.label] = str(error)
            typer.echo(f"{contender.label} cannot be run: {error}")
            return False
        self.found.labels[contender.key] = contender.label
        return True

    def _check(self, contender: Contender) -> None:
        """Raises StartError where the contender's answers are not the expected ones."""
        mix = self._mixes[0]
        items = self._rows.traffic.items(mix, _CHECKED_TURNS)
        right = self._bare.order("run_best", mix.name, items)["values"]
        replies = _drive(contender, items, 1, keeps_replies=True)["replies"]
        values = [value for reply in replies for value in contender.read(json.loads(reply))]
        if len(values) != len(right):
            raise StartError(f"gives {len(values)} values where {len(right)} are right")
        if not (distance := max(map(abs, np.subtract(values, right)))) <= _TOLERANCE:
            raise StartError(f"answers wrongly: what it gives is off by {distance:.4f}")

    def _measure_bare(self, mix: LengthMix) -> None:
        items = self._rows.traffic.items(mix, round(self._options.turns * mix.turns_factor))
        took = self._bare.order("run_best", mix.name, items)
        del took["values"]
        self.found.measurements.append(Measurement(contender=BARE, mix=mix.name, clients=0, turns=len(items), **took))
        single = self._bare.order("run_singly", mix.name, self._rows.traffic.items(mix, _SINGLE_TURNS))
        self.found.bare_single_p50_ms.setdefault(mix.name, []).append(single["p50_ms"])

    def _measure(self, contender: Contender, mix: LengthMix, clients: int) -> None:
        size = contender.turns_per_request
        try:
            items = self._rows.traffic.items(mix, turns_for(self._options.turns, mix, clients, size))
            done = _drive(contender, items, clients)
        except StartError as error:
            self.found.not_run[f"{contender.label}, {mix.name}, {clients} clients"] = str(error)
            return
        p50, p99 = (percentile(done["latencies_ms"], each) for each in (50, 99))
        names = ("wall_seconds", "cpu_seconds", "client_cpu_seconds", "refused", "failed", "first_error")
        self.found.measurements.append(
            Measurement(
                contender=contender.key, mix=mix.name, clients=clients, turns=done["answered"] * size, p50_ms=p50,
                p99_ms=p99, **{name: done[name] for name in names},
            )
        )  # fmt: skip


def _drive(contender: Contender, items: Sequence[Any], clients: int, *, keeps_replies: bool = False) -> dict[str, Any]:
    size = contender.turns_per_request
    bodies = [contender.body(items[at : at + size]) for at in range(0, len(items), size)]
    job = Job(
        port=contender.port, path=contender.path, bodies=bodies, api=contender.api, clients=clients,
        keeps_replies=keeps_replies,
    )  # fmt: skip
    return drive(contender.server, job)


def ratios(found: ServerComparison) -> str:
    """Served over bare, throughput over each other server, latency above bare: every mix and number of clients."""
    others = [key for key in found.labels if not key.startswith("turnscore")]
    rows = []
    for mix in found.mixes():
        for clients in found.clients():
            for key in found.labels:
                if not key.startswith("turnscore") or found.cell(key, mix, clients) is None:
                    continue
                above = found.latency_above_bare(key, mix) if clients == 1 and key != "turnscore-16" else None
                throughputs = [number(found.throughput_over(key, other, mix, clients), 1) for other in others]
                over_bare = number(found.served_over_bare(key, mix, clients), 2)
                rows.append([mix, str(clients), found.labels[key], over_bare, number(above, 1), *throughputs])
    head = ["lengths", "clients", "", "CPU, served over bare", "p50 above bare, ms"]
    return table([*head, *(f"turns/s over {found.labels[key]}" for key in others)], rows, texts=3)


def _mix_table(found: ServerComparison, mix: str) -> str:
    head = ["", "clients", "CPU s / 1,000 turns", "over bare", "turns/s", "p50 ms", "p99 ms"]
    bare, rows = found.cell(BARE, mix), []
    if bare:
        rows.append(["bare runtime, ideal batches", "", *_cells(bare, bare)[:3], *["-"] * 5])
    for clients in found.clients():
        for key, label in found.labels.items():
            if cell := found.cell(key, mix, clients):
                rows.append([label, str(clients), *_cells(cell, bare)])
    return table([*head, "client's share of CPU", "refused", "failed"], rows, texts=1)


def _cells(cell: Cell, bare: Cell | None) -> list[str]:
    over_bare = number(cell["cpu_ms"] / bare["cpu_ms"] if bare else None, 2)
    times = [number(cell[name], 1) for name in ("p50_ms", "p99_ms")]
    counts = [number(cell[name]) for name in ("refused", "failed")]
    rate, share = number(cell["turns_per_second"]), f"{100 * cell['client_share']:.1f} %"
    return [number(cell["cpu_ms"], 2), over_bare, rate, *times, share, *counts]
