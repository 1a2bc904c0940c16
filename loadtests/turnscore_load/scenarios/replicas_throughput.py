"""Measures turns per second of one replica, two and three, each on a core of its own, and compares with the ideal.

The ideal of several is the sum of what each core carries alone, in the same run. Every turn is asked once: what a cache
answered is counted and taken off, so that no turn counts twice.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Annotated

import uvloop
from typer import Option

from turnscore_load.fleet import Fleet, fleet
from turnscore_load.generator import Generator, connect_to, post_bytes
from turnscore_load.machine import ScenarioError
from turnscore_load.results import table
from turnscore_load.scenario import Scenario
from turnscore_load.services import metric
from turnscore_load.traffic import texts

# So that generator and proxy, which share the cores, cost a few hundredths of what the replicas do. Chosen.
_TURNS_PER_REQUEST = 32
_CLIENTS_PER_REPLICA = 4
_DEADLINE_MS = 60_000
_WARM_SECONDS = 2.0
_MEASURED_SECONDS = 12.0
# Of one replica. More than any machine has shown; so many are written down before the clock starts.
_MOST_TURNS_PER_SECOND = 1_500

# Per second: computed `turns` without those that a cache answered; CPUs of `replicas`, `proxy and Redis`, `generator`;
# and `cached` turns in all.
Figures = Mapping[str, float]
USED = ("replicas", "proxy and Redis", "generator")


class FailedRequestsError(ScenarioError):
    """A request was not answered in full, so that there is no throughput to report; the message says why."""


@dataclass(kw_only=True)
class ReplicasThroughput(Scenario[dict[str, list[Figures]]]):
    """Measure what each number of replicas carries."""

    rounds: Annotated[int, Option(min=1)] = 3

    def measure(self) -> dict[str, list[Figures]]:
        return uvloop.run(self._measure())

    async def _measure(self) -> dict[str, list[Figures]]:
        """By the cores that the replicas were given: each core alone, then the first two, and so on, three at most."""
        cores = [(core,) for core in sorted(os.sched_getaffinity(0))[:3]]
        ways = {"-".join(map(str, way)): way for way in (*cores, *list(accumulate(cores))[1:])}
        found: dict[str, list[Figures]] = {name: [] for name in ways}
        with ExitStack() as stack:
            fleets = {
                name: stack.enter_context(fleet(self.serving / "turnscore", self.folder / name, cpus=way))
                for name, way in ways.items()
            }
            for number in range(self.rounds):
                for name, running in fleets.items():
                    found[name].append(await _measure(running, f"{number} {name}"))
        return found

    def report(self, found: dict[str, list[Figures]]) -> Iterator[str]:
        """Medians over the rounds."""
        middle = {
            name: {each: median(one[each] for one in figures) for each in figures[0]} for name, figures in found.items()
        }
        rows = []
        for name, figures in middle.items():
            rate, cores = figures["turns"], name.split("-")
            ideal, used = sum(middle[core]["turns"] for core in cores), [figures[each] for each in USED]
            cells = [f"{rate:.0f}", f"{rate / ideal:.0%} of {ideal:.0f}", f"{rate / used[0]:.0f}"]
            cached = f"{sum(each['cached'] for each in found[name]):.0f}"
            shares = "; ".join(f"{u:.2f}" for u in used)
            rows.append([f"{len(cores)} ({', '.join(cores)})", *cells, shares, cached])
        head = ["replicas (cores)", "turns per second", "of the ideal", "turns per CPU second of the replicas"]
        yield table([*head, f"cores used: {'; '.join(USED)}", "answered by caches"], rows)


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
    replicas = sum(each.cpu_seconds() for each in running.replicas)
    shared = running.proxy.cpu_seconds() + running.redis.cpu_seconds()
    return dict(zip(USED, (replicas, shared, time.process_time()), strict=True))


def _from_caches(running: Fleet) -> float:
    names = ("turnscore_cache_hits_total", "turnscore_cache_joins_total")
    return sum(metric(each.port, *names) for each in running.replicas)
