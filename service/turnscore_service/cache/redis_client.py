"""Talks to the Redis at an address (one server, a Sentinels' master or a Cluster), and names what goes wrong.

The caller bounds a round trip: a command that is cancelled closes its connection, so that no reply of it
can be taken for another's. Nothing is tried twice. redis-py's own defaults wait for seconds and try again.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff

from turnscore_service.settings.cache import CacheSettings, RedisAddress


class GarbageError(Exception):
    """The answer is not a Redis', or is garbage."""


_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    ((TimeoutError, exceptions.TimeoutError), "timeout"),
    ((GarbageError, exceptions.InvalidResponse, UnicodeDecodeError), "garbage"),
    ((exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError), "forbidden"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.OutOfMemoryError, "full"),
    (exceptions.ReadOnlyError, "read_only"),
    (
        (exceptions.ClusterDownError, exceptions.ClusterError, exceptions.RedisClusterException, MasterNotFoundError),
        "failing_over",
    ),
    ((exceptions.ConnectionError, OSError), "connection"),
    (exceptions.ResponseError, "refused"),
    (exceptions.RedisError, "other"),
)
_PREFIXES = {
    "NOAUTH": "forbidden",
    "WRONGPASS": "forbidden",
    "MISCONF": "read_only",
    "NOREPLICAS": "read_only",
    "MASTERDOWN": "failing_over",
    "UNBLOCKED": "failing_over",
    "ERR unknown command": "garbage",
}


def cause_of(error: BaseException) -> str:
    """The word for what a store raised."""
    if isinstance(error, exceptions.ResponseError):
        text = str(error)
        for prefix, cause in _PREFIXES.items():
            if text.startswith(prefix):
                return cause
    return next((cause for kinds, cause in _CAUSES if isinstance(error, kinds)), "other")


_SCANNED_AT_ONCE = 1000  # keys looked at in one step of a removal, which other commands wait for: under a millisecond


@dataclass(frozen=True, slots=True)
class PendingWrite:
    entry: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Draw:
    """Turns that are taken from a key's budget, or below 0 given back to it; 0 looks whether it can be used."""

    key_name: str
    turns_per_second: float
    burst: int
    turns: int


Drawn = tuple[bool, float]
"""Whether the budget had a turn left, which takes all of the draw's; and the turns that it then has, maybe below 0."""

# Keeps the time, in milliseconds of the Redis' own clock, at which the budget is full again; a full one is not kept.
# What is taken a microsecond after the rest was may not be refused for the last digit: hence 1e-6 of a turn.
_DRAW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local ms_per_turn, burst, turns = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
local level = burst - (full_at - now) / ms_per_turn
if turns > 0 and level + 1e-6 < 1 then return {0, string.format('%.9f', level)} end
full_at = math.max(now, full_at + turns * ms_per_turn)
redis.call('SET', KEYS[1], string.format('%.17g', full_at), 'PX', math.ceil(full_at - now) + 1)
return {1, string.format('%.9f', burst - (full_at - now) / ms_per_turn)}
"""


class EntryStore:
    """Entries of one Redis, also of a master that changes from time to time. Raises what goes wrong (`cause_of`)."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self._client: Any = client

    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """The entries, in order, in one round trip."""
        return _checked(await self._client.mget(keys), len(keys))

    async def write(self, entries: Mapping[str, PendingWrite]) -> list[Exception]:
        """Writes in one round trip; the errors of those that were refused."""
        pipeline = self._client.pipeline(transaction=False)
        for key, each in entries.items():
            pipeline.set(key, each.entry, px=each.ttl_ms)
        return _refused(await pipeline.execute(raise_on_error=False))

    async def draw(self, draws: Sequence[Draw]) -> list[Drawn]:
        """What comes of each, one after the other, in one round trip. Raises the first error."""
        pipeline = self._client.pipeline(transaction=False)
        for each in draws:
            key, ms_per_turn = f"turnscore:budget:{each.key_name}", 1000 / each.turns_per_second
            pipeline.eval(_DRAW, 1, key, ms_per_turn, each.burst, each.turns)
        return list(map(_read_drawn, await pipeline.execute(raise_on_error=False)))

    async def remove(self, pattern: str) -> int:
        """Removes the entries whose keys match the glob, in many round trips; how many there were."""
        removed = 0
        async for keys in _by_thousands(self._client.scan_iter(match=pattern, count=_SCANNED_AT_ONCE)):
            removed += await self._unlink(keys)
        return removed

    async def drop_idle(self) -> None:
        await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def _unlink(self, keys: Sequence[bytes]) -> int:
        return int(await self._client.unlink(*keys))


class _ClusterStore(EntryStore):
    """A Cluster: the keys of one round trip go to every node that has some of them, at once."""

    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        pipeline = self._client.pipeline()
        for key in keys:
            pipeline.get(key)
        found = await pipeline.execute(raise_on_error=False)
        for each in found:
            if isinstance(each, Exception):
                raise each
        return _checked(found, len(keys))

    async def drop_idle(self) -> None:
        await self._client.aclose()  # and asks again which node has what

    async def _unlink(self, keys: Sequence[bytes]) -> int:
        pipeline = self._client.pipeline()
        for key in keys:
            pipeline.execute_command("UNLINK", key)  # its own `unlink` is for one slot
        return sum(await pipeline.execute())


def open_store(address: RedisAddress, settings: CacheSettings) -> EntryStore:
    """The store at that address. Does not connect yet."""
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        # for writes, probes, budgets of API keys, and looking whether a model was cleared
        "max_connections": settings.connections + 4,
        "socket_connect_timeout": settings.timeout_ms / 1000,
        "socket_timeout": None,  # costs a task a command; the caller bounds the round trip as a whole
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
        "protocol": 2,
    }
    tls = _tls_options(address)
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return _ClusterStore(RedisCluster(startup_nodes=nodes, ssl=address.is_encrypted, **options, **tls))
    if address.kind == "sentinel":
        return EntryStore(_master(address, settings, {**options, **tls, "db": address.database}))
    pool = ConnectionPool(**options, **tls, **_place(address), db=address.database)
    return EntryStore(Redis.from_pool(pool))


def _place(address: RedisAddress) -> dict[str, Any]:
    if address.kind == "unix":
        return {"connection_class": UnixDomainSocketConnection, "path": address.path}
    [(host, port)] = address.hosts[:1]
    return {"connection_class": SSLConnection if address.is_encrypted else Connection, "host": host, "port": port}


def _master(address: RedisAddress, settings: CacheSettings, options: Mapping[str, Any]) -> Redis:
    password = settings.sentinel_password
    sentinel_options = {
        "username": settings.sentinel_username,
        "password": password.get_secret_value() if password else None,
        "socket_connect_timeout": settings.timeout_ms / 1000,
        "socket_timeout": settings.timeout_ms / 1000,  # one that is silent must leave time for the next
        "retry": Retry(NoBackoff(), 0),
        "ssl": address.is_encrypted,
        **_tls_options(address),
    }
    encrypted = {"ssl": address.is_encrypted}
    sentinel = Sentinel(address.hosts, sentinel_kwargs=sentinel_options, **encrypted, **options)  # type: ignore[no-untyped-call]
    return cast("Redis", sentinel.master_for(address.service))


def _tls_options(address: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = dict(address.tls)
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() in {"1", "true", "yes"}
    return options


async def _by_thousands(keys: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    some: list[bytes] = []
    async for key in keys:
        some.append(key)
        if len(some) == _SCANNED_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _checked(found: object, count: int) -> list[bytes | None]:
    if isinstance(found, list) and len(found) == count and all(each is None or type(each) is bytes for each in found):
        return found
    raise GarbageError


def _read_drawn(found: object) -> Drawn:
    if isinstance(found, Exception):
        raise found
    if not (isinstance(found, list) and len(found) == 2 and type(found[1]) is bytes):
        raise GarbageError
    return found[0] == 1, float(found[1])


def _refused(results: object) -> list[Exception]:
    if not isinstance(results, list):
        raise GarbageError
    return [each if isinstance(each, Exception) else GarbageError() for each in results if each is not True]
