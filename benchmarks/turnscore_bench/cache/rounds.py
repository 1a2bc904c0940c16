"""Rounds: who is measured when. The ways take turns, in another order each round."""

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from turnscore_bench.cache.redis_process import RedisProcess, measure_locks
from turnscore_bench.cache.samples import Duplicates, Findings, Sample, percentiles
from turnscore_bench.cache.services import Services
from turnscore_bench.cache.ways import WAYS, Question, Requests, Way, read_scores
from turnscore_bench.harness.processes import StartError

LOCK_CALLERS = (1, 32)
_ALIKE = 1e-3
"""Two computations of a turn differ by rounding, where other turns stood in its batch."""
_WARM_UP_TRIES = 4
"""The first keeps the scores, the second finds them; another one where the service was paused while it wrote."""
_DUPLICATED = Question("engagement", 1, 4)
_TURNS_PER_CLIENT = 2
_BATCHES_PER_CLIENT = 3
"""At least, so that the last requests, which run alone, do not decide the time that all of them took."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many turns one measurement has."""

    engagement: int
    """For one client; three times as many where several ask turn by turn."""
    fed: int
    hits: int
    """Of known turns: they are quick."""
    faults: int

    def of(self, way: Way, question: Question) -> int:
        """Turns for one measurement: whole requests, an even number, some for each client."""
        wanted = self.hits if way.sent == "known" else getattr(self, question.scorer)
        if way.sent != "known" and question.scorer == "engagement" and question.clients > 1:
            wanted *= 3
        least = question.clients * (_TURNS_PER_CLIENT if question.turns_per_request == 1 else _BATCHES_PER_CLIENT)
        requests = max(wanted // question.turns_per_request, least)
        return int(requests + requests % 2) * question.turns_per_request


@dataclass(kw_only=True)
class Run:
    """What one run works with."""

    services: Services
    redis: RedisProcess
    requests: Requests
    sizes: Sizes
    findings: Findings
    say: Callable[[str], None]


def warm_up(run: Run, questions: Sequence[Question]) -> None:
    """Makes the known turns known to every service, and checks that hits are hits and right. Raises StartError."""
    for question in questions:
        right = _ask(run, "off", question)
        for service in ("redis", "both"):
            wait_until_in_use(run.services, service)
            pairs = zip(_ask_until_cached(run, service, question), right, strict=True)
            furthest = max(abs(one["value"] - other["value"]) for one, other in pairs)
            if furthest > _ALIKE:
                raise StartError(f"{service}: a cached value of {question.scorer} is off by {furthest:.4f}")


def _ask(run: Run, service: str, question: Question) -> list[dict[str, Any]]:
    answer = run.services.drive(service, question.path, run.requests.known(question), 1, keeps_replies=True)
    return read_scores(answer["replies"], question.scorer)


def _ask_until_cached(run: Run, service: str, question: Question) -> list[dict[str, Any]]:
    for _ in range(_WARM_UP_TRIES):
        scores = _ask(run, service, question)
        if all(each["cached"] for each in scores):
            return scores
    raise StartError(f"{service}: not every known turn of {question.scorer} came from the cache")


def run_round(run: Run, number: int, questions: Sequence[Question]) -> None:
    """Measures every way for every question once."""
    start = number % len(WAYS)
    for question in questions:
        size, clients = question.turns_per_request, question.clients
        run.say(f"round {number + 1}: {question.scorer}, {size} a request, {clients} clients")
        for way in (*WAYS[start:], *WAYS[:start]):
            run.findings.samples.append(_measure(run, number, way, question))


def _measure(run: Run, number: int, way: Way, question: Question) -> Sample:
    bodies = run.requests.of(way, question, run.sizes.of(way, question))
    before = run.redis.cpu_seconds()
    answer = run.services.drive(way.service, question.path, bodies, question.clients)
    p50, p99 = percentiles(answer["latencies_ms"])
    return Sample(
        round=number,
        way=way.key,
        question=question,
        turns=answer["answered"] * question.turns_per_request - answer["failed_items"],
        wall_seconds=answer["wall_seconds"],
        cpu_seconds=answer["cpu_seconds"],
        redis_cpu_seconds=run.redis.cpu_seconds() - before,
        p50_ms=p50,
        p99_ms=p99,
        failed=answer["failed_requests"] + answer["failed_items"],
    )


def wait_until_in_use(services: Services, service: str) -> None:
    """Returns when the breakers are closed. Raises StartError where it takes too long."""
    for _ in range(600):
        if services.metric(service, "turnscore_cache_breaker_state") == 0:
            return
        services.let_run(service, 0.1)  # only a service that runs probes its Redis
    raise StartError(f"{service}: the breakers did not close")


def count_duplicates(run: Run, services: Sequence[str]) -> None:
    """How many turns two processes compute twice, of which each is asked once: in the same order, or in another."""
    for traffic in ("at the same time", "at any time"):
        run.say(f"two processes asked {traffic}")
        bodies = run.requests.fresh(_DUPLICATED, 2 * run.sizes.engagement)
        later = list(bodies)
        if traffic == "at any time":
            random.Random(0).shuffle(later)
        before = _count_scored(run, services)
        with ThreadPoolExecutor(2) as pool:
            answer = list(pool.map(partial(_ask_all, run), services, (bodies, later)))
        run.findings.duplicates.append(
            Duplicates(
                traffic=traffic,
                turns=2 * len(bodies),
                distinct=len(bodies),
                computed=round(_count_scored(run, services) - before),
                cpu_seconds=sum(each["cpu_seconds"] for each in answer),
            )
        )


def _ask_all(run: Run, service: str, bodies: Sequence[str]) -> dict[str, Any]:
    return run.services.drive(service, _DUPLICATED.path, bodies, _DUPLICATED.clients)


def _count_scored(run: Run, services: Sequence[str]) -> float:
    return sum(run.services.metric(service, "turnscore_items_total", outcome="scored") for service in services)


def time_locks(run: Run) -> None:
    """What a lock would cost each miss."""
    for callers in LOCK_CALLERS:
        run.findings.lock_us[callers] = asyncio.run(measure_locks(run.redis.url, callers))
