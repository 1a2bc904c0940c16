"""A Redis as shared scores, for callers without an event loop: the store, keys and entries of the service's cache.

A Redis that fails costs computing, never the caller's work: it is not used for a while.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from pydantic import SecretStr

from turnscore_service.cache.redis_client import EntryStore, PendingWrite, cause_of, open_store
from turnscore_service.settings.cache import CacheSettings

TTL_SECONDS = 7 * 86_400  # for which a score is kept. Chosen: longer than a corpus takes
_TRIP_SECONDS = 2.0  # for one round trip: no caller waits for it
_PAUSE_SECONDS = 30.0  # for which a Redis that failed is not used
_AT_ONCE = 1000  # keys in one round trip: some 150 kB of entries

_LOGGER = logging.getLogger("turnscore.engine")
_Result = TypeVar("_Result")


class RedisScores:
    """Known scores in a Redis. Belongs to one thread."""

    def __init__(
        self, url: str, *, ttl_seconds: int = TTL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`url`: an address as the service's cache takes them (docs/deploy.md). Raises ValidationError for another."""
        settings = CacheSettings(url=SecretStr(url), timeout_ms=int(1000 * _TRIP_SECONDS))
        address = settings.address()
        assert address is not None
        self._loop = asyncio.new_event_loop()
        self._store: EntryStore = open_store(address, settings)
        self._ttl_ms = 1000 * ttl_seconds
        self._clock = clock
        self._closed_until = -_PAUSE_SECONDS
        self.found = self.asked = 0  # entries since the start

    def fetch(self, keys: Sequence[str]) -> list[bytes | None]:
        """What is kept under each key; nothing where the Redis does not answer."""
        found: list[bytes | None] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            found += self._try(lambda some=some: self._store.read(some)) or [None] * len(some)  # type: ignore[misc]
        self.asked += len(keys)
        self.found += sum(each is not None for each in found)
        return found

    def keep(self, entries: Mapping[str, bytes]) -> None:
        """Writes them, or drops them where the Redis does not answer."""
        items = iter(entries.items())
        while some := dict(islice(items, _AT_ONCE)):
            writes = {key: PendingWrite(entry, self._ttl_ms) for key, entry in some.items()}
            refused = self._try(lambda writes=writes: self._store.write(writes))  # type: ignore[misc]
            if refused:
                self._leave_alone(refused[0])

    def close(self) -> None:
        self._try(self._store.close)
        self._loop.close()

    def _try(self, trip: Callable[[], Awaitable[_Result]]) -> _Result | None:
        """One bounded round trip; None where it fails, or where the Redis is not used."""
        if self._clock() < self._closed_until:
            return None

        async def bounded() -> _Result:
            async with asyncio.timeout(_TRIP_SECONDS):
                return await trip()

        try:
            return self._loop.run_until_complete(bounded())
        except Exception as error:
            self._leave_alone(error)
            return None

    def _leave_alone(self, error: Exception) -> None:
        _LOGGER.warning("the shared scores are not used for %d s: %s", _PAUSE_SECONDS, cause_of(error))
        self._closed_until = self._clock() + _PAUSE_SECONDS
