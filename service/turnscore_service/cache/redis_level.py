"""The level that processes share: a Redis that may fail at any time. Nothing in here raises into a request.

Reads are bounded in time and go together; writes follow the answers. Each has a breaker of its own, since a Redis that
is full or read-only still answers. While a breaker is open no caller waits: the Redis is probed in the background.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

from turnscore_service import metrics
from turnscore_service.cache.breaker import Breaker
from turnscore_service.cache.coalescer import Coalescer, Entries
from turnscore_service.cache.key import PROBE_KEY, mark_key
from turnscore_service.cache.redis_client import EntryStore
from turnscore_service.cache.redis_faults import cause_of
from turnscore_service.cache.write_behind import PendingWrite, WriteBehind
from turnscore_service.settings.cache import CacheSettings

_CONNECT_SECONDS = 1.0
"""For a probe to open all connections, in the background; a lookup then finds them open. Chosen."""
_STOP_SECONDS = 0.5
"""Time to write waiting entries when the process ends. Chosen."""

_PROBE_KEYS = [PROBE_KEY] * 3
"""Several keys, like a lookup: a server with one answer to everything does not pass."""

_LOGGER = logging.getLogger("turnscore.cache")
_Result = TypeVar("_Result")


def _ignore(_: str, __: bytes) -> None:
    """For callers that need not know what was cleared."""


class RedisLevel:
    """Entries in a Redis. Belongs to one event loop."""

    def __init__(self, store: EntryStore, settings: CacheSettings) -> None:
        self._store = store
        self._settings = settings
        self._timeout_seconds = settings.timeout_ms / 1000
        self._reading = Breaker("read", settings)
        self._writing = Breaker("write", settings)
        self._lookups = Coalescer(self._read, settings.connections)
        self._writes = WriteBehind(self._write, settings.max_pending_writes, settings.write_delay_ms / 1000)
        self._tasks: list[asyncio.Task[None]] = []
        self._models: Sequence[str] = ()
        self._on_mark: Callable[[str, bytes], object] = _ignore

    def start(self, models: Sequence[str], on_mark: Callable[[str, bytes], object]) -> None:
        """Begins to connect. `on_mark` gets the mark of each of the models before anything is read, and then often:

        at the latest `clear_poll_seconds` after it has changed, while the Redis is in use.
        """
        self._models, self._on_mark = models, on_mark
        self._tasks = [
            asyncio.create_task(self._keep_probing(self._reading, self._probe_reading)),
            asyncio.create_task(self._keep_probing(self._writing, self._probe_writing)),
            asyncio.create_task(self._writes.run()),
            asyncio.create_task(self._keep_reading_marks()),
        ]

    async def follow(self, models: Sequence[str], on_mark: Callable[[str, bytes], object]) -> None:
        """From here on gives the marks of these models to `on_mark`, and each once before it returns.

        Where they cannot be read, the Redis is left alone until they have been: nothing is found that was cleared.
        """
        self._models, self._on_mark = models, on_mark
        if self._reading.is_closed and await self._attempt(self._reading, self._read_marks()) is None:
            self._reading.trip()

    async def stop(self) -> None:
        """Writes waiting entries, for a moment, and closes the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._writes.flush()
                await self._store.close()
        except Exception as error:
            _LOGGER.info("the cache was left with %s", cause_of(error))

    async def fetch(self, keys: Sequence[str], seconds: float) -> Entries | None:
        """The entries in the order of `keys`; None at once while the Redis is left alone, or after the time allowed."""
        if not self._reading.is_closed:
            return None
        return await self._lookups.fetch(keys, min(seconds, self._timeout_seconds))

    def put(self, key: str, entry: bytes, ttl_ms: int) -> None:
        """Takes the entry to be written later; drops it while the Redis takes none, or where too many wait."""
        if self._writing.is_closed:
            self._writes.put(key, entry, ttl_ms)
        else:
            metrics.CACHE_DROPPED_WRITES.labels("open").inc()

    async def _read(self, keys: Sequence[str]) -> Entries | None:
        if not self._reading.is_closed:
            return None
        return await self._attempt(self._reading, self._store.read(keys))

    async def _write(self, entries: Mapping[str, PendingWrite]) -> None:
        if self._writing.is_closed:
            await self._attempt(self._writing, self._write_all(entries))
        else:
            metrics.CACHE_DROPPED_WRITES.labels("open").inc(len(entries))

    async def _write_all(self, entries: Mapping[str, PendingWrite]) -> None:
        """Raises the first refusal, after counting the others."""
        refusals = await self._store.write(entries)
        for error in refusals[1:]:
            metrics.CACHE_ERRORS.labels(self._writing.operation, cause_of(error)).inc()
        if refusals:
            raise refusals[0]

    async def _attempt(self, breaker: Breaker, work: Awaitable[_Result]) -> _Result | None:
        """One bounded round trip; None where it fails, which is counted by cause."""
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                result = await work
        except Exception as error:
            cause = cause_of(error)
            metrics.CACHE_ERRORS.labels(breaker.operation, cause).inc()
            breaker.record(has_failed=True, cause=cause)
            return None
        finally:
            metrics.CACHE_SECONDS.labels(breaker.operation).observe(time.monotonic() - started_at)
        breaker.record(has_failed=False)
        return result

    async def _keep_probing(self, breaker: Breaker, probe: Callable[[], Awaitable[None]]) -> None:
        while True:
            await breaker.wait_until_open()
            await asyncio.sleep(breaker.pause_seconds())
            breaker.begin_probe()
            try:
                await probe()
            except Exception as error:
                cause = cause_of(error)
                metrics.CACHE_ERRORS.labels(f"probe_{breaker.operation}", cause).inc()
                breaker.end_probe(has_failed=True, cause=cause)
            else:
                breaker.end_probe(has_failed=False)

    async def _probe_reading(self) -> None:
        """Opens as many connections as lookups use, so that none has to wait for one; then it must answer in time."""
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._store.drop_idle()  # those to a server that is gone, or is no longer the master
            reads = [self._store.read(_PROBE_KEYS) for _ in range(self._settings.connections)]
            for each in await asyncio.gather(*reads, return_exceptions=True):
                if isinstance(each, BaseException):
                    raise each
        async with asyncio.timeout(self._timeout_seconds):
            await self._store.read(_PROBE_KEYS)
            await self._read_marks()  # what was cleared meanwhile must not be found

    async def _probe_writing(self) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._store.drop_idle()
            for refusal in await self._store.write({PROBE_KEY: PendingWrite(b"", ttl_ms=1000)}):
                raise refusal

    async def _keep_reading_marks(self) -> None:
        while True:
            await asyncio.sleep(self._settings.clear_poll_seconds)
            if self._reading.is_closed:
                await self._attempt(self._reading, self._read_marks())

    async def _read_marks(self) -> Literal[True]:
        if self._models:
            marks = await self._store.read([mark_key(model) for model in self._models])
            for model, mark in zip(self._models, marks, strict=True):
                self._on_mark(model, mark or b"")
        return True
