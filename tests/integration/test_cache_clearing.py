"""What `turnscore cache clear` removes: from the Redis, and from every worker that uses it."""

import asyncio

import pytest
from support.cache_loads import running_runtime, state_of, uses_redis
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake
from turnscore_core.scoring import Deadline
from turnscore_service.cache.cli import app
from turnscore_wire import ScoreRequest
from typer.testing import CliRunner

LOCAL = 1_000_000


async def cached(runtime, namespace=None):
    request = ScoreRequest(response="a b", cache_namespace=namespace)
    reply = await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000))
    return {name: score.cached for name, score in reply.scores.items()}


async def clear(*words, poll_seconds=0.05):
    environment = {"TURNSCORE_CACHE__CLEAR_POLL_SECONDS": str(poll_seconds)}
    return await asyncio.to_thread(CliRunner().invoke, app, ["clear", *words], env=environment)


async def written(server, count):
    with server.client() as client:
        await until(lambda: len(client.keys("turnscore:3:*")) == count)


async def test_a_cleared_model_is_computed_again_by_every_worker_and_no_other_is(redis):
    scorers = {name: loaded_fake(FakeScorer(), name) for name in ("fake", "fake2")}
    async with (
        running_runtime(redis.url, scorers, local_max_bytes=LOCAL, timeout_ms=5000) as one,
        running_runtime(redis.url, scorers, local_max_bytes=LOCAL, timeout_ms=5000) as other,
    ):
        await uses_redis(one)
        await uses_redis(other)
        for namespace in (None, "tenant"):
            await cached(one, namespace)
        await written(redis, 4)
        assert await cached(other) == await cached(one, "tenant") == {"fake": True, "fake2": True}
        done = await clear("fake:1.0.0", "--url", redis.url)
        assert (done.exit_code, done.stdout) == (0, "removed 2 scores of fake:1.0.0\n")
        assert await cached(one) == await cached(one, "tenant") == {"fake": False, "fake2": True}
        await written(redis, 4)
        assert await cached(other) == {"fake": True, "fake2": True}


async def test_a_worker_that_could_not_be_told_finds_nothing_when_it_has_the_redis_again(redis):
    async with running_runtime(redis.url, local_max_bytes=LOCAL, clear_poll_seconds=1000, timeout_ms=5000) as runtime:
        await uses_redis(runtime)
        await cached(runtime)
        await written(redis, 1)
        done = await clear("fake:1.0.0", "--url", redis.url)
        assert done.exit_code == 0
        assert await cached(runtime) == {"fake": True}  # it was not told: 1,000 seconds are not over
        with redis.client() as client:
            client.execute_command("CONFIG", "SET", "maxclients", "1")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            for number in range(10):
                request = ScoreRequest(response=f"{number}")
                await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000))
            assert state_of("read") != 0
            client.execute_command("CONFIG", "SET", "maxclients", "100")
        await uses_redis(runtime)
        assert await cached(runtime) == {"fake": False}


async def test_what_a_worker_writes_before_it_is_told_is_removed_too(redis):
    with redis.client() as client:
        client.set("turnscore:3:n:fake:1.0.0:i:early", b"x")
        clearing = asyncio.create_task(clear("fake:1.0.0", "--url", redis.url, poll_seconds=0.5))
        await until(lambda: client.exists("turnscore:3-cleared:fake:1.0.0"))
        client.set("turnscore:3:n:fake:1.0.0:i:late", b"x")
        assert (await clearing).stdout == "removed 2 scores of fake:1.0.0\n"
        assert client.keys("turnscore:3:*") == []


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["fake", "--url", "redis://127.0.0.1:1"], 2, "'fake' is not a name:version"),
        (["fake:*", "--url", "redis://127.0.0.1:1"], 2, "'fake:*' is not a name:version"),
        (["fake:1.0.0"], 2, "there is no shared cache: neither --url nor TURNSCORE_CACHE__URL names one"),
        (["fake:1.0.0", "--url", "redis://127.0.0.1:1"], 1, "the Redis cannot be used: connection"),
    ],
    ids=["no version", "a glob", "no address", "no service there"],
)
async def test_a_clearing_that_cannot_be_done_says_why(words, status, told):
    done = await clear(*words)
    assert (done.exit_code, done.stderr.strip()) == (status, told)
