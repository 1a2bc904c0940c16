"""A Redis that falls sick under load, in every way: all answers are right, it is left alone, and it comes back."""

import pytest
from support.cache_loads import assert_left_alone, dropped, errors, loaded_service, state_of, until, works
from support.processes import RedisServer, impostor


@pytest.mark.parametrize(
    ("end", "begin", "cause"),
    [(RedisServer.kill, RedisServer.start, "connection"), (RedisServer.pause, RedisServer.resume, "timeout")],
    ids=["killed", "suspended"],
)
async def test_gone_and_back_again(redis, end, begin, cause):
    async with loaded_service(redis.url) as load:
        await works(load)
        before = errors("read", cause)
        end(redis)
        await assert_left_alone(load)
        assert errors("read", cause) > before
        begin(redis)
        await works(load)


GARBAGE = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff" * 50, b"+OK\r\n", b"*1\r\n:7\r\n", b"*1\r\n$2\r\nhi\r\n",
    b":1\r\n",
)  # fmt: skip


async def test_replaced_by_a_socket_that_answers_garbage(redis):
    """Callers meet the first reply, and the looks for its return the others too: both read in one way."""
    async with loaded_service(redis.url) as load:
        await works(load)
        redis.kill()
        for reply in GARBAGE:
            async with impostor(redis.port, reply):
                await assert_left_alone(load)
                before = errors("probe_read", "garbage")
                await until(lambda before=before: errors("probe_read", "garbage") > before + 1)
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
async def test_a_redis_that_takes_no_writes_is_still_read(redis, fall_sick, recover, cause):
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
