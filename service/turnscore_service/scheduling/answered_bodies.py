"""Answered bodies: the latest answered requests, by a hash of their bytes. Holds no text and no answer.

A request that comes again in the same bytes is most likely in the cache, so that it is worth decoding while others are
refused undecoded.
"""

from collections import OrderedDict
from contextvars import ContextVar
from hashlib import blake2b

MOST_BODIES = 16_384
"""Some 3 MiB of hashes. Chosen: beyond, the oldest answers are forgotten."""
_HASH_BYTES = 16

WAS_ANSWERED: ContextVar[bool] = ContextVar("turnscore_was_answered", default=False)
"""Whether the request of this task was decoded only because an equal one was answered."""


class AnsweredBodies:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def note(self, body: bytes, *, is_answered: bool) -> None:
        """Remembers a body that was answered; forgets one that was not."""
        hashed = _hash(body)
        self._hashes.pop(hashed, None)
        if is_answered:
            self._hashes[hashed] = None
            if len(self._hashes) > MOST_BODIES:
                self._hashes.popitem(last=False)

    def clear(self) -> None:
        """Forgets all: the models are others, and the cache has none of their scores."""
        self._hashes.clear()

    def __contains__(self, body: bytes) -> bool:
        return _hash(body) in self._hashes


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=_HASH_BYTES).digest()
