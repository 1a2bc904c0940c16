"""Clearing: removes a model's entries from the shared level, and has every worker that uses it forget its own."""

import asyncio
import secrets

from turnscore_service.cache.key import key_pattern, mark_key
from turnscore_service.cache.redis_client import EntryStore
from turnscore_service.cache.write_behind import PendingWrite
from turnscore_service.settings.cache import CacheSettings

_MARK_SECONDS = 365 * 86_400
"""No worker holds anything from before as long. When a mark ends, entries made since are no longer found. Chosen."""
_MARK_BYTES = 8


async def clear_model(store: EntryStore, model: str, settings: CacheSettings) -> int:
    """Removes the entries of `name:version` in every namespace; how many there were.

    Returns when every worker that has the Redis in use has asked for the mark: what it knew is no longer found, and
    what it has written meanwhile of that is removed too. Raises what the store does.
    """
    removed = await store.remove(key_pattern(model))
    mark = PendingWrite(secrets.token_bytes(_MARK_BYTES), 1000 * _MARK_SECONDS)
    for refusal in await store.write({mark_key(model): mark}):
        raise refusal
    in_flight = (settings.timeout_ms + settings.write_delay_ms) / 1000
    await asyncio.sleep(settings.clear_poll_seconds + 2 * in_flight)
    return removed + await store.remove(key_pattern(model))
