"""Answered bodies: the latest answered requests, by a hash of their bytes. Holds no text and no answer.

A request that comes again in the same bytes is most likely in the cache, so that it is worth decoding while others are
refused undecoded.
"""

from contextvars import ContextVar
from hashlib import blake2b

from cachetools import LRUCache

MOST_BODIES = 16_384
"""Some 3 MiB of hashes. Chosen: beyond, the oldest answers are forgotten."""
_HASH_BYTES = 16

WAS_ANSWERED: ContextVar[bool] = ContextVar("turnscore_was_answered", default=False)
"""Whether the request of this task was decoded only because an equal one was answered."""


class AnsweredBodies:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._hashes: LRUCache[bytes, None] = LRUCache(MOST_BODIES)

    def note(self, body: bytes, *, is_answered: bool) -> None:
        """Remembers a body that was answered; forgets one that was not."""
        if is_answered:
            self._hashes[_hash(body)] = None
        else:
            self._hashes.pop(_hash(body), None)

    def __contains__(self, body: bytes) -> bool:
        return _hash(body) in self._hashes


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=_HASH_BYTES).digest()
