"""A Redis that falls sick under load, in every way: all answers are right, it is left alone, and it comes back."""

from collections.abc import Callable

import pytest
from support.cache_loads import assert_left_alone, dropped, errors, loaded_service, state_of, until, works
from support.processes import RedisServer, impostor

Change = Callable[[RedisServer], None]


@pytest.mark.parametrize(
    ("end", "begin", "cause"),
    [(RedisServer.kill, RedisServer.start, "connection"), (RedisServer.pause, RedisServer.resume, "timeout")],
    ids=["killed", "suspended"],
)
async def test_gone_and_back_again(redis: RedisServer, end: Change, begin: Change, cause: str):
    async with loaded_service(redis.url) as load:
        await works(load)
        before = errors("read", cause)
        end(redis)
        await assert_left_alone(load)
        assert errors("read", cause) > before
        begin(redis)
        await works(load)


GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "noise": b"\x00\xff" * 50,
    "ok": b"+OK\r\n",
    "number": b"*1\r\n:7\r\n",
    "bulk": b"*1\r\n$2\r\nhi\r\n",
    "integer": b":1\r\n",
}


@pytest.mark.parametrize("first", ["http", "bulk"])
async def test_replaced_by_a_socket_that_answers_garbage(redis: RedisServer, first: str):
    """Callers meet the first reply, and the looks for its return the others too: both read in one way."""
    async with loaded_service(redis.url) as load:
        await works(load)
        redis.kill()
        for name in sorted(GARBAGE, key=lambda name: name != first):
            async with impostor(redis.port, GARBAGE[name]):
                await assert_left_alone(load)
                before = errors("probe_read", "garbage")
                await until(lambda before=before: errors("probe_read", "garbage") > before + 1)
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
        await until(lambda: state_of("read") == 0)
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
