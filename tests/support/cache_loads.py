"""A service whose cache is a Redis, under a load that compares every answer with the right one."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from turnscore_core.scoring import Deadline
from turnscore_service import metrics
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.service import Settings
from turnscore_wire import ScoreRequest

from support.conditions import until
from support.fakes import FakeScorer
from support.transports import ready_runtime

CALLERS = 4
TEXTS = 40


def total(metric, suffix="_total", **labels):
    """The sum of a metric's samples over all labels that are not given."""
    samples = (each for family in metric.collect() for each in family.samples if each.name.endswith(suffix))
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def hits():
    return total(metrics.CACHE_HITS, level="shared")


def misses(cause):
    return total(metrics.CACHE_MISSES, cause=cause)


def errors(operation, cause):
    return total(metrics.CACHE_ERRORS, operation=operation, cause=cause)


def dropped(cause):
    return total(metrics.CACHE_DROPPED_WRITES, cause=cause)


def round_trips():
    return total(metrics.CACHE_SECONDS, "_count", operation="read")


def state_of(operation):
    return total(metrics.CACHE_BREAKER, "_state", operation=operation)


@dataclass
class Load:
    """Callers that never stop asking, mostly for the same few turns; each answer is compared with what is right."""

    runtime: Runtime
    answered: int = 0
    wrong: list[object] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def ask(self):
        for number in self.numbers:
            text = f"{number if number % 4 == 0 else number % TEXTS} " + "a " * (number % 7)
            reply = await self.runtime.pipeline().score(ScoreRequest(response=text), "r", Deadline.after_ms(60_000))
            self.answered += 1
            if reply.scores["fake"].value != len(text.split()) / 100:
                self.wrong.append(reply)
            await asyncio.sleep(0.002)  # leaves the machine to the servers of this test

    async def goes_on(self, more=100):
        """Returns when that many more were answered."""
        so_far = self.answered
        await until(lambda: self.answered >= so_far + more)


QUICK = {
    "local_max_bytes": 0, "timeout_ms": 300, "breaker_failures": 3, "breaker_retry_seconds": 0.02,
    "breaker_max_retry_seconds": 0.1, "write_delay_ms": 1, "clear_poll_seconds": 0.05,
}  # fmt: skip


@asynccontextmanager
async def running_runtime(url, scorers=None, **settings):
    """A service of a `FakeScorer`, unless told otherwise, whose only cache is the one at `url`."""
    cache = CacheSettings.model_validate({"url": url, **QUICK, **settings})
    async with ready_runtime(Settings(cache=cache), **(scorers or {"fake": FakeScorer()})) as runtime:
        yield runtime


def shared_level(runtime):
    """Its cache in Redis."""
    level = runtime._builder._shared
    assert level is not None
    return level


async def uses_redis(runtime):
    """Returns when the service reads its Redis and writes to it."""
    level = shared_level(runtime)
    await until(lambda: level._reading.is_closed and level._writing.is_closed)


@asynccontextmanager
async def loaded_service(url, **settings):
    """The same under load."""
    async with running_runtime(url, **settings) as runtime:
        load = Load(runtime)
        callers = [asyncio.create_task(load.ask()) for _ in range(CALLERS)]
        try:
            yield load
            assert runtime.health.is_ready
            assert not any(caller.done() for caller in callers)
            assert load.wrong == []
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)


async def works(load):
    """Returns when scores come from the cache."""
    before = hits()
    await until(lambda: hits() >= before + 20)


async def assert_left_alone(load):
    """While the breaker is open requests are answered without a single round trip."""
    await until(lambda: state_of("read") == 2)
    trips = round_trips()
    await load.goes_on()
    assert round_trips() <= trips + 2  # another concurrent batch and the look for marks may have been under way
    assert misses("unavailable") > 0


class DictLevel:
    """Holds what it is given. Can be shared by several caches."""

    def __init__(self):
        self.entries = {}

    async def fetch(self, keys, seconds):
        return [self.entries.get(key) for key in keys]

    def put(self, key, entry, ttl_ms):
        self.entries[key] = entry
