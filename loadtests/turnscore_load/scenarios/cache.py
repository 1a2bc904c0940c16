"""Measures the score cache with a real redis-server: what hits and misses cost, a failing Redis, and two processes."""

import asyncio
import json
import random
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import typer
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.retry import Retry
from turnscore_models import starter_bundles

from turnscore_load.contenders import EngagementRows
from turnscore_load.generator import Job, drive
from turnscore_load.machine import LOOPBACK
from turnscore_load.processes import Process, StartError, redis_process, started
from turnscore_load.results import Check, ScenarioResult, number, percentiles, rotate, table
from turnscore_load.services import BENTOML, metric, service_process
from turnscore_load.traffic import LENGTH_MIXES, ExactTraffic, Item, pack

Part = Literal["costs", "faults", "locks"]
NO_CACHE = "off"
"""The service whose cache is off; its requests say `bypass` too, so that equal turns in flight are computed each."""
HIT_SHARE = {"engagement": 1 / 3, "fed": 1 / 20}
"""Most that a Redis hit may cost of a miss."""
MISS_OVERHEAD = 1.05
NEARLY_TWICE = 1.8
"""Least throughput at 50 % repeats over none: a hit that costs a tenth allows 1.82. Chosen."""
CLOSED_MS = 60.0
"""Most that p99 may rise while a breaker is still closed."""
_MIX = LENGTH_MIXES["mixed"]
_KNOWN = 64
_SETTLE_SECONDS = 0.1
"""For scores to be written to the Redis after they were answered: ten times `write_delay_ms`. Chosen."""
_ALIKE = 1e-3
"""Two computations of a turn differ by rounding, where other turns were in its batch."""
_WARM_UP_TRIES = 4
"""The first keeps the scores, the second finds them; another one where the service was paused while it wrote."""
_TURNS_PER_CLIENT, _BATCHES_PER_CLIENT = 2, 3
"""At least, so that the last requests, which run alone, do not decide the time that all of them took."""
_LOCK_CALLERS = (1, 32)
_LOCK_CALLS = 2000
_GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@dataclass(frozen=True, slots=True)
class CacheQuestion:
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
FAULTS = CacheQuestion("engagement", 1, 4)
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
"""Its label, the service that is asked, and with which turns: `fresh`, `known`, or half of them repeats."""


@dataclass(frozen=True, kw_only=True)
class CacheCost:
    """One way in one round; milliseconds per turn."""

    way: str
    question: CacheQuestion
    cpu_ms: float
    redis_ms: float
    wall_ms: float
    p50_ms: float
    p99_ms: float
    failed: int


@dataclass(kw_only=True)
class CacheRun:
    """Everything one run measured."""

    costs: list[CacheCost] = field(default_factory=list)
    faults: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By the state of the Redis: the median and the 99th percentile of latencies, by round."""
    duplicates: list[list[str]] = field(default_factory=list)
    """Rows: the traffic, turns, distinct ones, computed ones, share of repeats computed again, CPU ms per turn."""
    lock_us: dict[int, float] = field(default_factory=dict)
    """CPU microseconds for one lock, by the number of callers at once."""
    failed: int = 0

    def of(self, way: str, question: CacheQuestion) -> list[CacheCost]:
        """By round."""
        return [each for each in self.costs if (each.way, each.question) == (way, question)]

    def ratio(
        self, way: str, base: str, question: CacheQuestion, measure: Callable[[CacheCost], float]
    ) -> float | None:
        """The median of the rounds' ratios: both sides of one were measured one soon after the other."""
        pairs = list(zip(self.of(way, question), self.of(base, question), strict=False))
        return median(measure(one) / measure(other) for one, other in pairs) if pairs else None


def main(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's bentoml.")] = BENTOML.parent,
    output: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("build/bench-cache"),
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    turns: Annotated[int, typer.Option(min=8, help="Engagement turns a measurement; FED has a third.")] = 100,
    batches: Annotated[bool, typer.Option(help="Also measure 16 turns per request.")] = True,
    only: Annotated[Part | None, typer.Option(help="One part of the three.")] = None,
) -> ScenarioResult:
    """Measure hits, misses, repeats and faults, and compare each with its target."""
    with started(redis_process(output.resolve() / "redis")) as redis:
        run = Runner(serving / "bentoml", output.resolve(), redis, turns)
        with redis_client(redis.port) as client:
            versions = f"redis-server {client.info('server')['redis_version']}, redis-py {version('redis')}"
        try:
            if only in (None, "costs"):
                run.measure_costs(rounds, [*QUESTIONS, *BATCHES] if batches else QUESTIONS)
            if only in (None, "faults"):
                run.measure_faults(rounds)
            if only in (None, "locks"):
                run.measure_locks()
        finally:
            run.stop()
    parts = [f"{versions}. Medians of {rounds} rounds.", *report(run.found)]
    return ScenarioResult(scenario="cache", parts=parts, checks=list(judge(run.found)))


def redis_client(port: int) -> Redis:
    """A client that gives up soon and tries nothing twice."""
    return Redis(port=port, socket_timeout=2, retry=Retry(NoBackoff(), 0))


class Runner:
    """The services, of which only the one that is measured runs: the others are paused."""

    def __init__(self, bentoml: Path, output: Path, redis: Process, turns: int) -> None:
        self._bentoml, self._output, self._redis, self._turns = bentoml, output, redis, turns
        self._bundles = {folder.name: folder for folder in starter_bundles()}
        self._traffic: ExactTraffic = EngagementRows().traffic
        self._known = self._traffic.items(_MIX, _KNOWN)
        self._services: dict[str, Process] = {}
        self.found = CacheRun()

    def stop(self) -> None:
        """Ends all services."""
        for service in self._services.values():
            service.stop()
        self._services.clear()

    def measure_costs(self, rounds: int, questions: Sequence[CacheQuestion]) -> None:
        """Every way for every question, round after round, each round begun by another way."""
        url = f"redis://{LOOPBACK}:{self._redis.port}"
        caches: dict[str, dict[str, str]] = {
            NO_CACHE: {"TTL_SECONDS": "0"}, "local": {}, "redis": {"URL": url, "LOCAL_MAX_BYTES": "0"},
            "both": {"URL": url},
        }  # fmt: skip
        for name, cache in caches.items():
            self._start(name, cache, ("engagement", "fed"))
        for scorer in ("engagement", "fed"):
            self._make_known(CacheQuestion(scorer, 1, 1))
        for number_ in range(rounds):
            for question in questions:
                typer.echo(f"round {number_ + 1}: {question}")
                self.found.costs += [self._measure(way, question) for way in rotate(WAYS, number_)]
        self.stop()

    def measure_faults(self, rounds: int) -> None:
        """Latency with a healthy Redis and with one that is sick, while breakers are closed and once they are open.

        Every turn is fresh, so that the healthy Redis spares no work that the sick one would not.
        """
        alone = {"URL": f"redis://{LOOPBACK}:{self._redis.port}", "LOCAL_MAX_BYTES": "0"}
        self._start("opens", alone, ("engagement",))
        # It takes more failures than are counted: its breaker never opens.
        self._start("stays_closed", {**alone, "BREAKER_WINDOW": "20", "BREAKER_FAILURES": "21"}, ("engagement",))
        for number_ in range(rounds):
            for service in ("opens", "stays_closed"):
                self._wait_until_in_use(service)
            self._measure_state("stays_closed", "healthy")
            for fault, (begin, end) in faults(self._redis).items():
                typer.echo(f"round {number_ + 1}: a Redis that is {fault}")
                begin()
                try:
                    self._measure_state("stays_closed", f"{fault}, breaker closed")
                    self._drive("opens", FAULTS, self._fresh(FAULTS, 20 * FAULTS.clients))
                    self._measure_state("opens", f"{fault}, breaker open")
                finally:
                    end()
                self._wait_until_in_use("opens")
                self._measure_state("opens", f"healthy again, after {fault}")
        self.stop()

    def measure_locks(self) -> None:
        """How many turns two processes compute twice, each asked for them once; and what a lock would cost."""
        url = f"redis://{LOOPBACK}:{self._redis.port}"
        names = ("one", "other")
        for name in names:
            self._start(name, {"URL": url}, ("engagement",))
            self._wait_until_in_use(name)
        for traffic in ("at the same time", "at any time"):
            typer.echo(f"two processes asked {traffic}")
            bodies = self._fresh(FAULTS, 2 * self._turns)
            later = list(bodies)
            if traffic == "at any time":
                random.Random(0).shuffle(later)
            before = self._count_scored(names)
            with ThreadPoolExecutor(2) as pool:
                done = list(pool.map(lambda *asked: self._drive(asked[0], FAULTS, asked[1]), names, (bodies, later)))
            computed, distinct = round(self._count_scored(names) - before), len(bodies)
            cpu = 1000 * sum(each["cpu_seconds"] for each in done) / (2 * distinct)
            counts = [number(each) for each in (2 * distinct, distinct, computed)]
            again = f"{(computed - distinct) / max(distinct, 1):.1%}"
            self.found.duplicates.append([traffic, *counts, again, number(cpu, 2)])
        for callers in _LOCK_CALLERS:
            self.found.lock_us[callers] = asyncio.run(measure_lock(url, callers))
        self.stop()

    def _start(self, name: str, cache: Mapping[str, str], scorers: Sequence[str]) -> None:
        """Each with the machine to itself."""
        typer.echo(f"starting {name}")
        settings = {
            "TURNSCORE_GRPC__ENABLED": "false",
            "TURNSCORE_MODELS": ",".join(str(self._bundles[each]) for each in scorers),
            **{f"TURNSCORE_CACHE__{setting}": value for setting, value in cache.items()},
        }
        service = service_process(self._bentoml, self._output / "servers" / name, settings, clean=True)
        self._services[name] = service
        service.start()
        service.pause()

    def _make_known(self, question: CacheQuestion) -> None:
        """Makes the known turns known to every service, and checks that hits are hits and right. Raises StartError."""
        right = self._ask(NO_CACHE, question)
        for service in ("redis", "both"):
            self._wait_until_in_use(service)
            for _ in range(_WARM_UP_TRIES):
                scores = self._ask(service, question)
                if all(each["cached"] for each in scores):
                    break
            else:
                raise StartError(f"{service}: not every known turn of {question.scorer} came from the cache")
            off = max(abs(one["value"] - other["value"]) for one, other in zip(scores, right, strict=True))
            if off > _ALIKE:
                raise StartError(f"{service}: a cached value of {question.scorer} is off by {off:.4f}")

    def _ask(self, service: str, question: CacheQuestion) -> list[dict[str, Any]]:
        bodies = self._pack(self._known, question)
        replies = [json.loads(each) for each in self._drive(service, question, bodies, keeps_replies=True)["replies"]]
        return [reply["scores"][question.scorer] for reply in replies]

    def _measure(self, way: str, question: CacheQuestion) -> CacheCost:
        _, service, sent = WAYS[way]
        count = turns_of(way, question, self._turns)
        if sent == "known":
            items = [self._known[place % len(self._known)] for place in range(count)]
        elif sent == "half":
            items = self._traffic.items(_MIX, count // 2) * 2
            random.Random(count).shuffle(items)
        else:
            items = self._traffic.items(_MIX, count)
        before = self._redis.cpu_seconds()
        done = self._drive(service, question, self._pack(items, question, bypass=service == NO_CACHE))
        p50, p99 = percentiles(done["latencies_ms"])
        turns, redis = done["answered"] * question.turns_per_request, self._redis.cpu_seconds() - before
        return CacheCost(
            way=way, question=question, cpu_ms=1000 * done["cpu_seconds"] / turns, redis_ms=1000 * redis / turns,
            wall_ms=1000 * done["wall_seconds"] / turns, p50_ms=p50, p99_ms=p99, failed=done["failed"],
        )  # fmt: skip

    def _measure_state(self, service: str, state: str) -> None:
        done = self._drive(service, FAULTS, self._fresh(FAULTS, 2 * self._turns))
        self.found.faults.setdefault(state, []).append(percentiles(done["latencies_ms"]))

    def _fresh(self, question: CacheQuestion, count: int) -> list[str]:
        return self._pack(self._traffic.items(_MIX, count), question)

    def _pack(self, items: Sequence[Item], question: CacheQuestion, *, bypass: bool = False) -> list[str]:
        choice = {"cache": "bypass"} if bypass else {}
        return pack(items, question.turns_per_request, scorers=[question.scorer], **choice)

    def _drive(self, service: str, question: CacheQuestion, bodies: list[str], **job: Any) -> dict[str, Any]:
        """Sends the bodies from idle to idle. Raises StartError where the service hangs up."""
        path = "/v1/score" if question.turns_per_request == 1 else "/v1/score_batch"
        process = self._services[service]
        whole = Job(port=process.port, path=path, bodies=bodies, clients=question.clients, **job)
        done = drive(process, whole, _SETTLE_SECONDS)
        self.found.failed += done["failed"]
        return done

    def _metric(self, service: str, name: str, **labels: str) -> float:
        process = self._services[service]
        process.resume()
        try:
            return metric(process.port, name, **labels)
        finally:
            process.pause()

    def _count_scored(self, services: Sequence[str]) -> float:
        return sum(self._metric(each, "turnscore_items_total", outcome="scored") for each in services)

    def _wait_until_in_use(self, service: str) -> None:
        """Returns when the breakers are closed. Raises StartError where it takes too long."""
        for _ in range(600):
            if self._metric(service, "turnscore_cache_breaker_state") == 0:
                return
            self._services[service].resume()  # only a service that runs probes its Redis
            time.sleep(0.1)
            self._services[service].pause()
        raise StartError(f"{service}: the breakers did not close")


def turns_of(way: str, question: CacheQuestion, turns: int) -> int:
    """Of one measurement: whole requests, an even number, some for each client; more of those that are quick."""
    sent, size, clients = WAYS[way][2], question.turns_per_request, question.clients
    wanted = 8 * turns if sent == "known" else turns if question.scorer == "engagement" else turns // 3
    if sent != "known" and question.scorer == "engagement" and clients > 1:
        wanted *= 3
    requests = max(wanted // size, clients * (_TURNS_PER_CLIENT if size == 1 else _BATCHES_PER_CLIENT))
    return (requests + requests % 2) * size


def faults(redis: Process) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Ways to be sick, and to recover: each leaves the Redis as it was, though perhaps empty."""

    def order(words: str) -> Callable[[], object]:
        def execute() -> None:
            with redis_client(redis.port) as client:
                client.execute_command(*words.split())

        return execute

    impostor = Impostor(redis)
    return {
        "suspended": (redis.pause, redis.resume),
        "killed": (redis.kill, redis.start),
        "full": (order("CONFIG SET maxmemory 1"), order("CONFIG SET maxmemory 0")),
        "read-only": (order("REPLICAOF 127.0.0.1 1"), order("REPLICAOF NO ONE")),
        "replaced by garbage": (impostor.begin, impostor.end),
    }


class Impostor:
    """A socket at the address of a Redis that gives one answer to everything, which no Redis would."""

    def __init__(self, redis: Process) -> None:
        self._redis = redis
        self._server: _GarbageServer | None = None

    def begin(self) -> None:
        """Kills the Redis and takes its port."""
        self._redis.kill()
        self._server = _GarbageServer((LOOPBACK, self._redis.port), _GarbageHandler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Gives the port back to the Redis."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._redis.start()


class _GarbageServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class _GarbageHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while self.request.recv(65_536):
                self.request.sendall(_GARBAGE)
        except OSError:
            return


async def measure_lock(url: str, callers: int) -> float:
    """CPU microseconds of this process for one lock: `SET key value NX PX`, by that many callers at once."""
    client = AsyncRedis.from_url(url, max_connections=callers)

    async def lock(first: int) -> None:
        for number_ in range(first, _LOCK_CALLS, callers):
            await client.set(f"lock:{callers}:{number_}", b"1", nx=True, px=1000)

    async with client:
        await asyncio.gather(*(client.ping() for _ in range(callers)))
        before = time.process_time()
        await asyncio.gather(*(lock(first) for first in range(callers)))
        return 1e6 * (time.process_time() - before) / _LOCK_CALLS


def judge(found: CacheRun) -> Iterator[Check]:
    """Every target of which something was measured."""
    for question in dict.fromkeys(each.question for each in found.costs):
        share = HIT_SHARE[question.scorer]
        hit = found.ratio("hit_redis", "miss_redis", question, lambda each: each.cpu_ms)
        if hit is not None:
            claim = f"CPU of a Redis hit is at most 1/{1 / share:.0f} of a miss: {question}"
            yield Check(claim, f"1/{1 / max(hit, 1e-3):.1f}", hit <= share)
        for way, label in (("miss_local", "in-process level"), ("miss_both", "both levels")):
            miss = found.ratio(way, "off", question, lambda each: each.cpu_ms)
            if miss is not None:
                claim = f"CPU of a miss is at most {MISS_OVERHEAD} of no cache, {label}: {question}"
                yield Check(claim, f"{miss:.3f}", miss <= MISS_OVERHEAD)
        twice = found.ratio("half_both", "off", question, lambda each: 1 / each.wall_ms)
        if twice is not None:
            claim = f"throughput at 50 % repeats is at least {NEARLY_TWICE} of no cache's at none: {question}"
            # One client's throughput is its latency, and it leaves CPUs idle.
            yield Check(claim, f"{twice:.2f}", None if question.clients == 1 else twice >= NEARLY_TWICE)
    healthy = [p99 for state, each in found.faults.items() if state.startswith("healthy") for _, p99 in each]
    for state, each in found.faults.items():
        if not state.startswith("healthy"):
            rise = median(p99 for _, p99 in each) - median(healthy)
            most = CLOSED_MS if "closed" in state else max(healthy) - min(healthy)
            claim = f"p99 rises by at most {most:.1f} ms with a Redis that is {state}"
            yield Check(claim, f"{rise:+.1f} ms", rise <= most)
    yield Check("every request is answered with scores", f"{found.failed} failed", found.failed == 0)


def report(found: CacheRun) -> list[str]:
    """The costs of every way, latencies under faults, and what two processes compute twice."""
    parts = []
    head = ["", "CPU ms per turn", "CPU ms of Redis", "turns/s", "p50 ms", "p99 ms"]
    for question in dict.fromkeys(each.question for each in found.costs):
        rows = []
        for way, (label, _, _) in WAYS.items():
            if costs := found.of(way, question):
                cpu, redis, p50, p99 = (
                    number(median(getattr(each, name) for each in costs), 2)
                    for name in ("cpu_ms", "redis_ms", "p50_ms", "p99_ms")
                )
                rows.append([label, cpu, redis, number(median(1000 / each.wall_ms for each in costs)), p50, p99])
        parts += [f"### {str(question).capitalize()}", table(head, rows, texts=1)]
    if found.faults:
        rows = []
        for state, each in found.faults.items():
            p99s = [p99 for _, p99 in each]
            middle = [number(median(p50 for p50, _ in each), 1), number(median(p99s), 1)]
            rows.append([state, *middle, f"{number(min(p99s), 1)} to {number(max(p99s), 1)}", number(len(each))])
        parts += ["### A failing Redis", table(["Redis", "p50 ms", "p99 ms", "p99 by round", "rounds"], rows, texts=1)]
    if found.duplicates:
        head = ["", "turns", "distinct", "computed", "repeats computed again", "CPU ms per turn"]
        costs_ = ", ".join(f"{us:.0f} us with {callers} at once" for callers, us in found.lock_us.items())
        parts += ["### What a lock across processes would save, and cost", table(head, found.duplicates, texts=1)]
        parts.append(f"CPU of one lock (`SET NX PX` through redis-py, of the caller alone): {costs_}.")
    return parts
