"""Measures what hits and misses of the score cache cost, with a real redis-server."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, NamedTuple

import typer
from typer import Option

from turnscore_load.contenders import EngagementRows
from turnscore_load.fleet import STARTER
from turnscore_load.generator import Job, drive
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, StartError, redis_process, started
from turnscore_load.results import Check, Cost, figures_of, number, percentile, ratio, rotate, table
from turnscore_load.scenario import Scenario
from turnscore_load.services import metric
from turnscore_load.traffic import LENGTH_MIXES, Item, pack

# The service whose cache is off; its requests say `bypass` too, so that equal turns in flight are computed each.
NO_CACHE = "off"
HIT_SHARE = {"engagement": 1 / 3, "fed": 1 / 20}  # most that a Redis hit may cost of a miss
MISS_OVERHEAD = 1.05
NEARLY_TWICE = 1.8  # least throughput at 50 % repeats over none: a hit that costs a tenth allows 1.82; chosen
_MIX = LENGTH_MIXES["mixed"]
# For scores to be written to the Redis after they were answered: ten times `write_delay_ms`. Chosen.
_SETTLE_SECONDS = 0.1
_ALIKE = 1e-3  # two computations of a turn differ by rounding, where other turns were in its batch
# At least, so that the last requests, which run alone, do not decide the time that all of them took.
_TURNS_PER_CLIENT, _BATCHES_PER_CLIENT = 2, 3


class CacheQuestion(NamedTuple):
    """A scorer, the turns of one request, and the clients that ask at once."""

    scorer: str
    turns_per_request: int
    clients: int

    def __str__(self) -> str:
        size, clients = self.turns_per_request, self.clients
        turns = "one turn per request" if size == 1 else f"{size} turns per request"
        return f"{self.scorer}, {turns}, {clients} client{'s' * (clients > 1)}"


QUESTIONS = [CacheQuestion(scorer, 1, clients) for scorer in ("engagement", "fed") for clients in (1, 32)]
BATCHES = [CacheQuestion("engagement", 16, 1), CacheQuestion("engagement", 16, 8)]
# Its label, the service that is asked, and with which turns: `fresh`, `known`, or half of them repeats.
WAYS: Mapping[str, tuple[str, str, str]] = {
    "off": ("no cache", NO_CACHE, "fresh"),
    "miss_local": ("miss, in the process alone", "local", "fresh"),
    "miss_redis": ("miss, Redis alone", "redis", "fresh"),
    "miss_both": ("miss, both levels", "both", "fresh"),
    "hit_local": ("hit, in the process", "both", "known"),
    "hit_redis": ("hit, Redis", "redis", "known"),
    "half_off": ("50 % repeats, no cache", NO_CACHE, "half"),
    "half_both": ("50 % repeats, both levels", "both", "half"),
}


@dataclass(kw_only=True)
class Cache(Scenario[list[Cost]]):
    """Measure hits, misses and repeats, and compare each with its target."""

    rounds: Annotated[int, Option(min=1)] = 3
    turns: Annotated[int, Option(min=8, help="Engagement turns a measurement; FED has a third.")] = 100
    batches: Annotated[bool, Option(help="Also measure 16 turns per request.")] = True

    def measure(self) -> list[Cost]:
        with started(redis_process(self.folder / "redis")) as redis:
            run = _CacheRun(self, redis)
            try:
                return list(run.measure_costs())
            finally:
                run.stop()

    def report(self, found: list[Cost]) -> Iterator[str]:
        yield f"Medians of {self.rounds} rounds."
        head = ["", "CPU ms per turn", "CPU ms of Redis", "turns/s", "p50 ms", "p99 ms"]
        for question in dict.fromkeys(asked for _, asked, _ in found):
            rows = []
            for way, (label, _, _) in WAYS.items():
                own = {
                    name: median(figures_of(found, way, question, name))
                    for name in ("cpu_ms", "redis_ms", "wall_ms", "p50_ms", "p99_ms")
                }
                cpu, redis, p50, p99 = (number(own[name], 2) for name in ("cpu_ms", "redis_ms", "p50_ms", "p99_ms"))
                rows.append([label, cpu, redis, number(1000 / own["wall_ms"]), p50, p99])
            yield f"### {str(question).capitalize()}"
            yield table(head, rows, texts=1)

    def checks(self, found: list[Cost]) -> Iterator[Check]:
        return judge(found)


class _CacheRun:
    """The services, of which only the one that is measured runs: the others are paused."""

    def __init__(self, options: Cache, redis: Process) -> None:
        self._options, self._redis = options, redis
        self._traffic = EngagementRows().traffic
        self._known = self._traffic.items(_MIX, 64)
        self._services: dict[str, Process] = {}

    def stop(self) -> None:
        while self._services:
            self._services.popitem()[1].stop()

    def measure_costs(self) -> Iterator[Cost]:
        """Every way for every question, round after round, each round begun by another way."""
        url = f"redis://{LOOPBACK}:{self._redis.port}"
        self._start(NO_CACHE, TTL_SECONDS="0")
        self._start("local")
        self._start("redis", URL=url, LOCAL_MAX_BYTES="0")
        self._start("both", URL=url)
        for scorer in ("engagement", "fed"):
            self._make_known(CacheQuestion(scorer, 1, 1))
        for round_ in range(self._options.rounds):
            for question in [*QUESTIONS, *BATCHES] if self._options.batches else QUESTIONS:
                typer.echo(f"round {round_ + 1}: {question}")
                for way in rotate(WAYS, round_):
                    yield way, question, self._measure(way, question)

    def _start(self, name: str, **cache: str) -> None:
        """Each with the machine to itself."""
        typer.echo(f"starting {name}")
        settings = {
            "TURNSCORE_GRPC__ENABLED": "false",
            "TURNSCORE_MODELS": f"{STARTER / 'engagement'},{STARTER / 'fed'}",
            **{f"TURNSCORE_CACHE__{setting}": value for setting, value in cache.items()},
        }
        service = self._services[name] = self._options.service(name, settings)
        service.start()
        service.pause()

    def _make_known(self, question: CacheQuestion) -> None:
        """Makes the known turns known to every service, and checks that hits are hits and right. Raises StartError."""
        right = self._ask(NO_CACHE, question)
        for service in ("redis", "both"):
            self._wait_until_in_use(service)
            # The first keeps the scores, the second finds them; another one where it was paused while it wrote.
            for _ in range(4):
                scores = self._ask(service, question)
                if all(each["cached"] for each in scores):
                    break
            else:
                raise StartError(f"{service}: not every known turn of {question.scorer} came from the cache")
            off = max(abs(one["value"] - other["value"]) for one, other in zip(scores, right, strict=True))
            if off > _ALIKE:
                raise StartError(f"{service}: a cached value of {question.scorer} is off by {off:.4f}")

    def _ask(self, service: str, question: CacheQuestion) -> list[dict[str, Any]]:
        done = self._drive(service, question, self._pack(self._known, question), keeps_replies=True)
        if done["failed"]:
            raise StartError(f"{service}: {done['failed']} requests failed: {done['first_error']}")
        return [json.loads(each)["scores"][question.scorer] for each in done["replies"]]

    def _measure(self, way: str, question: CacheQuestion) -> Mapping[str, float]:
        _, service, sent = WAYS[way]
        count = turns_of(sent, question, self._options.turns)
        if sent == "known":
            items = [self._known[place % len(self._known)] for place in range(count)]
        elif sent == "half":
            items = self._traffic.items(_MIX, count // 2) * 2
            random.Random(count).shuffle(items)
        else:
            items = self._traffic.items(_MIX, count)
        before = self._redis.cpu_seconds()
        done = self._drive(service, question, self._pack(items, question, bypass=service == NO_CACHE))
        p50, p99 = (percentile(done["latencies_ms"], each) for each in (50, 99))
        turns, redis = done["answered"] * question.turns_per_request, self._redis.cpu_seconds() - before
        return {
            "cpu_ms": 1000 * done["cpu_seconds"] / turns, "redis_ms": 1000 * redis / turns,
            "wall_ms": 1000 * done["wall_seconds"] / turns, "p50_ms": p50, "p99_ms": p99, "failed": done["failed"],
        }  # fmt: skip

    def _pack(self, items: Sequence[Item], question: CacheQuestion, *, bypass: bool = False) -> list[str]:
        choice = {"cache": "bypass"} if bypass else {}
        return pack(items, question.turns_per_request, scorers=[question.scorer], **choice)

    def _drive(self, service: str, question: CacheQuestion, bodies: list[str], **job: Any) -> dict[str, Any]:
        """Sends the bodies from idle to idle. Raises StartError where the service hangs up."""
        path = "/v1/score" if question.turns_per_request == 1 else "/v1/score_batch"
        process = self._services[service]
        whole = Job(port=process.port, path=path, bodies=bodies, clients=question.clients, **job)
        return drive(process, whole, _SETTLE_SECONDS)

    def _wait_until_in_use(self, name: str) -> None:
        """Returns when the breakers are closed. Raises StartError where it takes too long."""
        service = self._services[name]
        service.resume()  # only a service that runs probes its Redis
        try:
            for _ in range(600):
                if metric(service.port, "turnscore_cache_breaker_state") == 0:
                    return
                time.sleep(0.1)
        finally:
            service.pause()
        raise StartError(f"{name}: the breakers did not close")


def turns_of(sent: str, question: CacheQuestion, turns: int) -> int:
    """Of one measurement: whole requests, an even number, some for each client; more of those that are quick."""
    size, clients = question.turns_per_request, question.clients
    wanted = 8 * turns if sent == "known" else turns if question.scorer == "engagement" else turns // 3
    if sent != "known" and question.scorer == "engagement" and clients > 1:
        wanted *= 3
    requests = max(wanted // size, clients * (_TURNS_PER_CLIENT if size == 1 else _BATCHES_PER_CLIENT))
    return (requests + requests % 2) * size


def judge(found: list[Cost]) -> Iterator[Check]:
    """Every target of which something was measured."""
    for question in dict.fromkeys(asked for _, asked, _ in found):
        share = HIT_SHARE[question.scorer]
        hit = ratio(found, "cpu_ms", ("hit_redis", question), ("miss_redis", question))
        if hit is not None:
            claim = f"CPU of a Redis hit is at most 1/{1 / share:.0f} of a miss: {question}"
            yield Check(claim, f"1/{1 / max(hit, 1e-3):.1f}", hit <= share)
        for way, label in (("miss_local", "in-process level"), ("miss_both", "both levels")):
            miss = ratio(found, "cpu_ms", (way, question), ("off", question))
            if miss is not None:
                claim = f"CPU of a miss is at most {MISS_OVERHEAD} of no cache, {label}: {question}"
                yield Check(claim, f"{miss:.3f}", miss <= MISS_OVERHEAD)
        slower = ratio(found, "wall_ms", ("half_both", question), ("off", question))
        twice = 1 / slower if slower else None
        if twice is not None:
            claim = f"throughput at 50 % repeats is at least {NEARLY_TWICE} of no cache's at none: {question}"
            # One client's throughput is its latency, and it leaves CPUs idle.
            yield Check(claim, f"{twice:.2f}", None if question.clients == 1 else twice >= NEARLY_TWICE)
    failed = sum(figures["failed"] for _, _, figures in found)
    yield Check("every request is answered with scores", f"{failed:.0f} failed", not failed)
