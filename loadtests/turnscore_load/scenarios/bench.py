"""Measures turnscore, the bare runtime and plain BentoML on the same model, in one run of alternating rounds.

BentoML is installed from PyPI into an environment of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
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
_SEARCH_TURNS = 120
_TOLERANCE = 1e-4  # how far an answer may be from the bare runtime's
_SINGLE_TURNS = 100
# Of a measurement with batches; beyond it 128 clients with batches of 16 would take minutes.
_MOST_BATCHED_TURNS = 2048


Cell = Mapping[str, float]  # medians over the rounds
MEASURES = ("cpu_ms", "wall_ms", "turns_per_second", "p50_ms", "p99_ms", "client_share", "refused", "failed")


@dataclass(kw_only=True)
class ServerComparison:
    """Everything that one run measured, and what it could not.

    A row is a contender in one round with one mix of lengths and one number of clients; `cpu_ms` and `wall_ms` are of a
    turn. The bare runtime has 0 clients, and 1 where it runs the turns one by one.
    """

    labels: dict[str, str] = field(default_factory=dict)  # the contenders by key, in the order of the tables
    rows: list[dict[str, Any]] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def all_of(self, column: str) -> list[Any]:
        """What the contenders' rows have in that column, each once; of mixes also the bare runtime's."""
        return list(dict.fromkeys(row[column] for row in self.rows if column == "mix" or row["contender"] != BARE))

    def cell(self, contender: str, mix: str, clients: int = 0) -> Cell | None:
        """The medians of one contender in one condition; None where it was not measured."""
        condition = {"contender": contender, "mix": mix, "clients": clients}
        rows = [each for each in self.rows if condition.items() <= each.items()]
        return {name: median(row.get(name, 0.0) for row in rows) for name in MEASURES} if rows else None


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
        run = _BenchRun(self)
        try:
            run.measure()
        finally:
            run.stop()
        return run.found

    def report(self, found: ServerComparison) -> Iterator[str]:
        yield f"{VERSIONS}. Medians of {self.rounds} rounds."
        yield f"### Ratios\n\n{ratios(found)}"
        for name in found.all_of("mix"):
            mix = LENGTH_MIXES[name]
            yield f"### {name.capitalize()}: {mix.least} to {mix.most} tokens per turn"
            yield _mix_table(found, name)
        yield f"### What could not be run\n\n{not_run(found.not_run)}"


class _BenchRun:
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
            plan = self._bare.order("find_best", mix.name, searched)
            typer.echo(f"bare runtime, {mix.name}: best with {plan['best']}")
        entered = [each for each in self._contenders if self._enters(each)]
        for round_ in range(self._options.rounds):
            for mix in self._mixes:
                items = self._rows.traffic.items(mix, round(self._options.turns * mix.turns_factor))
                self._keep(BARE, mix, 0, len(items), self._bare.order("run_best", mix.name, items))
                single = self._bare.order("run_singly", mix.name, self._rows.traffic.items(mix, _SINGLE_TURNS))
                self.found.rows.append({"contender": BARE, "mix": mix.name, "clients": 1, **single})
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
                _drive(contender, items, clients=16)
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

    def _measure(self, contender: Contender, mix: LengthMix, clients: int) -> None:
        size = contender.turns_per_request
        try:
            items = self._rows.traffic.items(mix, turns_for(self._options.turns, mix, clients, size))
            done = _drive(contender, items, clients)
        except StartError as error:
            self.found.not_run[f"{contender.label}, {mix.name}, {clients} clients"] = str(error)
            return
        if not done["answered"]:  # nothing to compare; the report says so
            self.found.not_run[f"{contender.label}, {mix.name}, {clients} clients"] = done["first_error"]
            return
        p50, p99 = (percentile(done["latencies_ms"], each) for each in (50, 99))
        more = {"p50_ms": p50, "p99_ms": p99, **{name: done[name] for name in ("refused", "failed", "first_error")}}
        self._keep(contender.key, mix, clients, done["answered"] * size, done, **more)

    def _keep(self, key: str, mix: LengthMix, clients: int, turns: int, took: Mapping[str, Any], **more: Any) -> None:
        cpu, client_cpu = took["cpu_seconds"], took.get("client_cpu_seconds", 0.0)
        self.found.rows.append(
            {
                "contender": key, "mix": mix.name, "clients": clients, "turns": turns,
                "cpu_ms": 1000 * cpu / turns, "wall_ms": 1000 * took["wall_seconds"] / turns,
                "turns_per_second": turns / took["wall_seconds"],
                "client_share": client_cpu / max(client_cpu + cpu, 1e-9), **more,
            }
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
    for mix, clients, key in product(found.all_of("mix"), sorted(found.all_of("clients")), found.labels):
        if not key.startswith("turnscore") or not (own := found.cell(key, mix, clients)):
            continue
        bare, single = found.cell(BARE, mix), found.cell(BARE, mix, 1)
        above = own["p50_ms"] - single["p50_ms"] if single and clients == 1 and key != "turnscore-16" else None
        cells = [found.cell(other, mix, clients) for other in others]
        throughputs = [number(each["wall_ms"] / own["wall_ms"] if each else None, 1) for each in cells]
        rows.append([mix, str(clients), found.labels[key], _over_bare(own, bare), number(above, 1), *throughputs])
    head = ["lengths", "clients", "", "CPU, served over bare", "p50 above bare, ms"]
    return table([*head, *(f"turns/s over {found.labels[key]}" for key in others)], rows, texts=3)


def _mix_table(found: ServerComparison, mix: str) -> str:
    head = ["", "clients", "CPU s / 1,000 turns", "over bare", "turns/s", "p50 ms", "p99 ms"]
    bare, rows = found.cell(BARE, mix), []
    if bare:
        rows.append(["bare runtime, ideal batches", "", *_cells(bare, bare)[:3], *["-"] * 5])
    for clients in sorted(found.all_of("clients")):
        for key, label in found.labels.items():
            if cell := found.cell(key, mix, clients):
                rows.append([label, str(clients), *_cells(cell, bare)])
    return table([*head, "client's share of CPU", "refused", "failed"], rows, texts=1)


def _over_bare(cell: Cell, bare: Cell | None) -> str:
    return number(cell["cpu_ms"] / bare["cpu_ms"] if bare else None, 2)


def _cells(cell: Cell, bare: Cell | None) -> list[str]:
    times = [number(cell[name], 1) for name in ("p50_ms", "p99_ms")]
    counts = [number(cell[name]) for name in ("refused", "failed")]
    rate, share = number(cell["turns_per_second"]), f"{100 * cell['client_share']:.1f} %"
    return [number(cell["cpu_ms"], 2), _over_bare(cell, bare), rate, *times, share, *counts]
