"""Measures turns per second of one replica, two and three, each on a core of its own, and compares with the ideal.

The ideal of several is the sum of what each core carries alone, in the same run. Every turn is asked once: what a cache
answered is counted and taken off, so that no turn counts twice.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
import uvloop

from turnscore_load.fleet import Fleet, fleet
from turnscore_load.generator import Generator, connect_to, post_bytes
from turnscore_load.machine import ScenarioError
from turnscore_load.results import ScenarioResult, table
from turnscore_load.scenarios.steady import REPORTS, Reports
from turnscore_load.services import SERVE, metric
from turnscore_load.traffic import texts

_TURNS_PER_REQUEST = 32
"""So that generator and proxy, which share the cores, cost a few hundredths of what the replicas do. Chosen."""
_CLIENTS_PER_REPLICA = 4
_DEADLINE_MS = 60_000
_WARM_SECONDS = 2.0
_MEASURED_SECONDS = 12.0
_MOST_TURNS_PER_SECOND = 1_500
"""Of one replica. More than any machine has shown; so many are written down before the clock starts."""

Cpus = tuple[int, ...]
Figures = Mapping[str, float]
"""Per second: computed `turns` without those that a cache answered; CPUs of `replicas`, `proxy and Redis`, `generator`;
and `cached` turns in all."""


class FailedRequestsError(ScenarioError):
    """A request was not answered in full, so that there is no throughput to report; the message says why."""


def main(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts each.")] = SERVE,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Measure what each number of replicas carries."""
    found = uvloop.run(run_throughput(serve, reports / "throughput", rounds))
    named = {"-".join(map(str, cpus)): figures for cpus, figures in found.items()}
    return ScenarioResult(scenario="replicas-throughput", parts=[throughput_table(found)], data=named)


async def run_throughput(serve: Path, folder: Path, rounds: int) -> dict[Cpus, list[Figures]]:
    """By the cores that the replicas were given: each core alone, then the first two, and so on, three at most."""
    cores = sorted(os.sched_getaffinity(0))[:3]
    ways: list[Cpus] = [*((core,) for core in cores), *[e for e in accumulate((c,) for c in cores) if len(e) > 1]]
    found: dict[Cpus, list[Figures]] = {way: [] for way in ways}
    with ExitStack() as stack:
        fleets = {
            way: stack.enter_context(fleet(serve, folder / "-".join(map(str, way)), count=len(way), cpus=way))
            for way in ways
        }
        for number in range(rounds):
            for way, running in fleets.items():
                found[way].append(await _measure(running, f"{number} {way}"))
    return found


async def _measure(running: Fleet, name: str) -> Figures:
    generator = Generator(connect_to(running.proxy.port), _DEADLINE_MS)
    clients = _CLIENTS_PER_REPLICA * len(running.replicas)
    most = _MOST_TURNS_PER_SECOND * (_WARM_SECONDS + _MEASURED_SECONDS) / _TURNS_PER_REQUEST
    requests = prepared_requests(running.proxy.port, name, int(most) * len(running.replicas))
    await generator.run_closed(clients, _WARM_SECONDS, requests)
    before, cached, begun = _cpu_seconds(running), _from_caches(running), time.monotonic()
    stage = await generator.run_closed(clients, _MEASURED_SECONDS, requests)
    seconds = time.monotonic() - begun  # until the last answer
    used = {name: (after - before[name]) / seconds for name, after in _cpu_seconds(running).items()}
    generator.close()
    hits = _from_caches(running) - cached
    if failed := {call.answer.why or call.answer.outcome for call in stage.calls if call.answer.outcome != "answered"}:
        raise FailedRequestsError(f"not all requests were answered: {', '.join(sorted(failed))}")
    return {"turns": (len(stage.calls) * _TURNS_PER_REQUEST - hits) / seconds, "cached": hits, **used}


def prepared_requests(port: int, name: str, count: int) -> Iterator[bytes]:
    """Written down beforehand, so that the generator's CPU is that of sending alone. `name` makes turns differ."""
    said = texts(name)
    bodies = []
    for number in range(count):
        items = [
            {"response": f"{place} {next(said)} {name} {number}", "deadline_ms": _DEADLINE_MS}
            for place in range(_TURNS_PER_REQUEST)
        ]
        bodies.append(post_bytes("/v1/score_batch", port, json.dumps({"items": items}).encode()))
    return iter(bodies)


def _cpu_seconds(running: Fleet) -> dict[str, float]:
    return {
        "replicas": sum(each.cpu_seconds() for each in running.replicas),
        "proxy and Redis": running.proxy.cpu_seconds() + running.redis.cpu_seconds(),
        "generator": time.process_time(),
    }


def _from_caches(running: Fleet) -> float:
    names = ("turnscore_cache_hits_total", "turnscore_cache_joins_total")
    return sum(metric(each.port, *names) for each in running.replicas)


def throughput_table(found: Mapping[Cpus, Sequence[Figures]]) -> str:
    """Medians over the rounds."""

    def middle(figures: Sequence[Figures], name: str) -> float:
        return median(each[name] for each in figures)

    alone = {way[0]: middle(figures, "turns") for way, figures in found.items() if len(way) == 1}
    rows = []
    for way, figures in found.items():
        rate, ideal = middle(figures, "turns"), sum(alone[core] for core in way)
        used = [middle(figures, name) for name in ("replicas", "proxy and Redis", "generator")]
        cells = [f"{rate:.0f}", f"{rate / ideal:.0%} of {ideal:.0f}", f"{rate / used[0]:.0f}"]
        cached = f"{sum(each['cached'] for each in figures):.0f}"
        rows.append([f"{len(way)} ({', '.join(map(str, way))})", *cells, "; ".join(f"{u:.2f}" for u in used), cached])
    head = ["replicas (cores)", "turns per second", "of the ideal", "turns per CPU second of the replicas"]
    return table([*head, "cores used: replicas; proxy and Redis; generator", "answered by caches"], rows)
