"""A Redis that falls sick under load, in every way: all answers are right, it is left alone, and it comes back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from prometheus_client.metrics import MetricWrapperBase
from support.fakes import FakeScorer, loaded_fake
from support.redis_servers import RedisServer, impostor, running_redis
from turnscore_service import metrics
from turnscore_service.cache_settings import CacheSettings
from turnscore_service.deadline import Deadline
from turnscore_service.settings import Settings
from turnscore_service.wiring import Runtime
from turnscore_wire import ScoreRequest

CALLERS = 4
TEXTS = 40


def total(metric: MetricWrapperBase, suffix: str = "_total", **labels: str) -> float:
    """The sum of a metric's samples over all labels that are not given."""
    samples = (each for family in metric.collect() for each in family.samples if each.name.endswith(suffix))
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def hits() -> float:
    return total(metrics.CACHE_HITS, level="shared")


def misses(cause: str) -> float:
    return total(metrics.CACHE_MISSES, cause=cause)


def errors(operation: str, cause: str) -> float:
    return total(metrics.CACHE_ERRORS, operation=operation, cause=cause)


def dropped(cause: str) -> float:
    return total(metrics.CACHE_DROPPED_WRITES, cause=cause)


def round_trips() -> float:
    return total(metrics.CACHE_SECONDS, "_count", operation="read")


def state_of(operation: str) -> float:
    return total(metrics.CACHE_BREAKER, "_state", operation=operation)


async def until(claim: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not claim():
            await asyncio.sleep(0.01)


@dataclass
class Load:
    """Callers that never stop asking, mostly for the same few turns; each answer is compared with what is right."""

    runtime: Runtime
    answered: int = 0
    wrong: list[object] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def ask(self) -> None:
        for number in self.numbers:
            text = f"{number if number % 4 == 0 else number % TEXTS} " + "a " * (number % 7)
            reply = await self.runtime.pipeline().score(ScoreRequest(response=text), "r", Deadline.after_ms(60_000))
            self.answered += 1
            if reply.scores["fake"].value != len(text.split()) / 100:
                self.wrong.append(reply)
            await asyncio.sleep(0.002)  # leaves the machine to the servers of this test

    async def goes_on(self, more: int = 100) -> None:
        """Returns when that many more were answered."""
        so_far = self.answered
        await until(lambda: self.answered >= so_far + more)


@asynccontextmanager
async def loaded_service(url: str, **settings: object) -> AsyncIterator[Load]:
    """A service whose only cache is the one at `url`, under load."""
    quick = {
        "breaker_failures": 3,
        "breaker_probe_seconds": 0.02,
        "breaker_max_probe_seconds": 0.1,
        "write_delay_ms": 1,
    }
    cache = CacheSettings.model_validate({"url": url, "local_max_bytes": 0, **quick, **settings})
    runtime = Runtime(Settings(cache=cache), load=lambda _: {"fake": loaded_fake(FakeScorer())})
    runtime.start()
    await runtime.wait_until_loaded()
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
        await runtime.stop()


async def works(load: Load) -> None:
    """Returns when scores come from the cache."""
    before = hits()
    await until(lambda: hits() >= before + 20)


@pytest.fixture
def redis(tmp_path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server


async def assert_left_alone(load: Load) -> None:
    """While the breaker is open requests are answered without a single round trip."""
    await until(lambda: state_of("read") == 2)
    trips = round_trips()
    await load.goes_on()
    assert round_trips() <= trips + 1  # one of the two lanes may have been under way
    assert misses("unavailable") > 0


async def test_killed_and_started_again(redis: RedisServer):
    async with loaded_service(redis.url) as load:
        await works(load)
        before = errors("read", "connection")
        redis.kill()
        await assert_left_alone(load)
        assert errors("read", "connection") > before
        redis.start()
        await works(load)


async def test_suspended_and_resumed(redis: RedisServer):
    async with loaded_service(redis.url) as load:
        await works(load)
        before = errors("read", "timeout")
        redis.suspend()
        await assert_left_alone(load)
        assert errors("read", "timeout") > before
        redis.resume()
        await works(load)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff" * 50,
        b"+OK\r\n",
        b"*1\r\n:7\r\n",
        b"*1\r\n$2\r\nhi\r\n",
        b":1\r\n",
    ],
    ids=["http", "noise", "ok", "number", "bulk", "integer"],
)
async def test_replaced_by_a_socket_that_answers_garbage(redis: RedisServer, reply: bytes):
    async with loaded_service(redis.url) as load:
        await works(load)
        redis.kill()
        async with impostor(redis.port, reply):
            await assert_left_alone(load)
            before = errors("probe_read", "garbage")
            await until(lambda: errors("probe_read", "garbage") > before + 1)
            await load.goes_on()
        redis.start()
        await works(load)


async def test_replaced_by_a_socket_that_never_answers(redis: RedisServer):
    async with loaded_service(redis.url) as load:
        await works(load)
        redis.kill()
        async with impostor(redis.port, None):
            await assert_left_alone(load)
            before = errors("probe_read", "timeout")
            await until(lambda: errors("probe_read", "timeout") > before)
            await load.goes_on()
        redis.start()
        await works(load)


@pytest.mark.parametrize(
    ("fall_sick", "recover", "cause"),
    [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "full"),
        (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"], "read_only"),
        (["CONFIG", "SET", "min-replicas-to-write", "1"], ["CONFIG", "SET", "min-replicas-to-write", "0"], "read_only"),
    ],
    ids=["full", "a replica", "short of replicas"],
)
async def test_a_redis_that_takes_no_writes_is_still_read(
    redis: RedisServer, fall_sick: list[str], recover: list[str], cause: str
):
    async with loaded_service(redis.url) as load:
        await works(load)
        before = errors("write", cause)
        with redis.client() as client:
            client.execute_command(*fall_sick)
        await until(lambda: errors("write", cause) > before)
        await until(lambda: state_of("write") == 2)
        assert state_of("read") == 0
        before = dropped("open")
        await until(lambda: dropped("open") > before)
        await load.goes_on()
        with redis.client() as client:
            client.execute_command(*recover)
        await until(lambda: state_of("write") == 0)
        await works(load)


async def test_one_that_asks_for_a_password_is_a_miss(redis: RedisServer):
    redis.configure(requirepass="right")
    before = errors("probe_read", "forbidden")
    async with loaded_service(redis.url, password="wrong") as load:
        await load.goes_on()
        await until(lambda: errors("probe_read", "forbidden") > before)
    async with loaded_service(redis.url, password="right") as load:
        await works(load)


async def test_one_that_is_not_there_at_first_is_used_when_it_comes(redis: RedisServer):
    redis.kill()
    async with loaded_service(redis.url) as load:
        await assert_left_alone(load)
        redis.start()
        await works(load)


async def test_entries_that_are_damaged_are_computed_anew(redis: RedisServer):
    async with loaded_service(redis.url) as load:
        await works(load)
        with redis.client() as client:
            for damage in (b"", b"\x01", b"\x09future", b"\xff" * 60):
                before = misses("unreadable") + misses("stale")
                for key in client.keys("turnscore:*"):
                    client.set(key, damage)
                await until(lambda before=before: misses("unreadable") + misses("stale") > before)
        await works(load)


async def test_entries_that_are_lists_are_not_there(redis: RedisServer):
    async with loaded_service(redis.url) as load:
        await works(load)
        with redis.client() as client:
            for key in client.keys("turnscore:1:*"):
                client.delete(key)
                with suppress(Exception):
                    client.rpush(key, "a list")
        await load.goes_on()
        await works(load)
