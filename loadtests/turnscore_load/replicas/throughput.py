"""Throughput: turns per second of one replica and of several, each on a core of its own, beside the ideal.

The ideal of several is the sum of what each core carries alone, in the same run. Every turn is asked once: what a cache
answered is counted and taken off, so that no turn counts twice.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from statistics import median

import psutil

from turnscore_load.generator import Generator
from turnscore_load.markdown import table
from turnscore_load.raw_http import post_bytes
from turnscore_load.replicas.fleet import Fleet, fleet
from turnscore_load.service_metrics import read_metrics, sum_of
from turnscore_load.traffic import Traffic, TrafficSettings

_TURNS_PER_REQUEST = 32
"""So that generator and proxy, which share the cores, cost a few hundredths of what the replicas do. Chosen."""
_CLIENTS_PER_REPLICA = 4
_DEADLINE_MS = 60_000
_WARM_SECONDS = 2.0
_MEASURED_SECONDS = 12.0
_MOST_TURNS_PER_SECOND = 1_500
"""Of one replica. More than any machine has shown; so many are written down before the clock starts."""
_FROM_CACHES = ("turnscore_cache_hits_total", "turnscore_cache_joins_total")


class FailedRequestsError(Exception):
    """A request was not answered in full, so that there is no throughput to report; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What replicas carried in one stretch. CPU is in cores: seconds of CPU per second."""

    turns_per_second: float
    """Computed; without those that a cache answered."""
    cached_turns: float
    replicas_cpu: float
    beside_cpu: float
    """Of the proxy and the Redis."""
    generator_cpu: float


async def run_throughput(serve: Path, folder: Path, rounds: int) -> dict[tuple[int, ...], list[Carried]]:
    """By the cores that the replicas were given: each core alone, then the first two, and so on, three at most."""
    cores = sorted(os.sched_getaffinity(0))[:3]
    together = [each for each in accumulate((core,) for core in cores) if len(each) > 1]
    ways = [*((core,) for core in cores), *together]
    found: dict[tuple[int, ...], list[Carried]] = {way: [] for way in ways}
    with ExitStack() as stack:
        fleets = {
            way: stack.enter_context(fleet(serve, folder / "-".join(map(str, way)), count=len(way), cores=way))
            for way in ways
        }
        for number in range(rounds):
            for way, running in fleets.items():
                found[way].append(await _measure(running, f"{number} {way}"))
    return found


async def _measure(running: Fleet, name: str) -> Carried:
    generator = Generator(running.port, _DEADLINE_MS)
    clients = _CLIENTS_PER_REPLICA * len(running.replicas)
    most = _MOST_TURNS_PER_SECOND * (_WARM_SECONDS + _MEASURED_SECONDS) / _TURNS_PER_REQUEST
    requests = prepared_requests(running.port, name, int(most) * len(running.replicas))
    await generator.run_closed(clients, _WARM_SECONDS, requests)
    before, cached, begun = _cpu_seconds(running), _from_caches(running), time.monotonic()
    stage = await generator.run_closed(clients, _MEASURED_SECONDS, requests)
    seconds = time.monotonic() - begun  # until the last answer
    used = {name: after - before[name] for name, after in _cpu_seconds(running).items()}
    generator.close()
    hits = _from_caches(running) - cached
    if failed := {call.answer.why or call.answer.outcome for call in stage.calls if call.answer.outcome != "answered"}:
        raise FailedRequestsError(f"not all requests were answered: {', '.join(sorted(failed))}")
    return Carried(
        turns_per_second=(len(stage.calls) * _TURNS_PER_REQUEST - hits) / seconds,
        cached_turns=hits,
        replicas_cpu=used["replicas"] / seconds,
        beside_cpu=used["beside"] / seconds,
        generator_cpu=used["generator"] / seconds,
    )


def prepared_requests(port: int, name: str, count: int) -> Iterator[bytes]:
    """Written down beforehand, so that the generator's CPU is that of sending alone. `name` makes turns differ."""
    traffic = Traffic(TrafficSettings(seed=29), name)
    bodies = []
    for number in range(count):
        items = [
            {
                "response": f"{place} {traffic.next_ask().item['response']} {name} {number}",
                "deadline_ms": _DEADLINE_MS,
            }
            for place in range(_TURNS_PER_REQUEST)
        ]
        body = json.dumps({"items": items}).encode()
        bodies.append(post_bytes("/v1/score_batch", port, body))
    return iter(bodies)


def _cpu_seconds(running: Fleet) -> Mapping[str, float]:
    def of(*pids: int) -> float:
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

    return {
        "replicas": of(*(each.process.pid for each in running.replicas if each.process is not None)),
        "beside": of(running.proxy.pid, running.redis.pid),
        "generator": time.process_time(),
    }


def _from_caches(running: Fleet) -> float:
    return sum(sum_of(read_metrics(each.port), *_FROM_CACHES) for each in running.replicas)


def throughput_report(found: Mapping[tuple[int, ...], Sequence[Carried]]) -> str:
    """The table that `make replicas-throughput` prints: medians over the rounds."""
    alone = {way[0]: _median(carried, "turns_per_second") for way, carried in found.items() if len(way) == 1}
    rounds = max(map(len, found.values()))
    where = (
        f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} CPUs, load average of the last 15 minutes"
        f" {psutil.getloadavg()[2]:.1f}; medians of {rounds} rounds; {_TURNS_PER_REQUEST} turns per request."
    )
    rows = []
    for way, carried in found.items():
        rate, replicas_cpu = _median(carried, "turns_per_second"), _median(carried, "replicas_cpu")
        ideal = sum(alone[core] for core in way)
        used = f"{replicas_cpu:.2f}; {_median(carried, 'beside_cpu'):.2f}; {_median(carried, 'generator_cpu'):.2f}"
        cached = sum(each.cached_turns for each in carried)
        cells = [f"{rate:.0f}", f"{rate / ideal:.0%} of {ideal:.0f}", f"{rate / replicas_cpu:.0f}", used]
        rows.append([f"{len(way)} ({', '.join(map(str, way))})", *cells, f"{cached:.0f}"])
    head = ["replicas (cores)", "turns per second", "of the ideal", "turns per CPU second of the replicas"]
    head += ["cores used: replicas; proxy and Redis; generator", "answered by caches"]
    return f"{where}\n\n{table(head, rows)}\n"


def _median(carried: Sequence[Carried], name: str) -> float:
    return median(float(getattr(each, name)) for each in carried)
