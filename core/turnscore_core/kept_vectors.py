"""Kept vectors: what a model computed of a text alone, in this process, to use again wherever the text is read.

Bounded in bytes, least recently used out first. No text stays: a text's key is a hash under a secret of this process,
over the encoder's digest and the token ids, so the vectors of one encoder are never found for another.
"""

import os
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock

import numpy as np

from turnscore_core.inference.onnx_backend import Array
from turnscore_core.load_settings import KEPT_VECTOR_BYTES

# Two of 2^64 different texts would be expected to share a key.
_KEY_BYTES = 16
# What Python takes for an entry and for each of its arrays. Measured with tracemalloc: 380 and 112.
_ENTRY_BYTES, _ARRAY_BYTES = 400, 120

TokenRow = tuple[int, ...]
Vectors = tuple[Array, ...]


@dataclass(slots=True)
class VectorCounts:
    """What happened in a store since it was made: by role, as a response or as context, and over all."""

    hits: dict[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    evictions: int = 0
    bytes: int = 0
    entries: int = 0


class VectorStore:
    """The vectors of all encoders of a process, each of which has its part."""

    def __init__(self, max_bytes: int = KEPT_VECTOR_BYTES) -> None:
        self.max_bytes = max_bytes
        self.counted = VectorCounts()
        self._secret = os.urandom(32)
        self.entries: OrderedDict[bytes, tuple[Vectors, int]] = OrderedDict()
        """Vectors and their bytes, the least recently used first."""
        self.lock = Lock()

    def of(self, encoder: str) -> "KeptVectors":
        """The part of it for the encoder of that digest."""
        return KeptVectors(self, blake2b(encoder.encode(), digest_size=32, key=self._secret).digest())

    def counts(self) -> VectorCounts:
        """A copy of what was counted until now."""
        with self.lock:
            return replace(self.counted, hits=dict(self.counted.hits), misses=dict(self.counted.misses))


class KeptVectors:
    """One encoder's part of a store. Safe in threads; its methods never wait for a computation."""

    def __init__(self, store: VectorStore, secret: bytes) -> None:
        self._store, self._secret = store, secret

    @property
    def has_room(self) -> bool:
        """Whether anything may be kept at all."""
        return self._store.max_bytes > 0

    def find(self, role: str, rows: Iterable[TokenRow], counted_as: str = "") -> dict[TokenRow, Vectors]:
        """What is kept of rows of token ids in that role, which become the most recently used.

        Hits and misses are counted under that name; not at all without one.
        """
        keys, entries, counted, found = self._keys(role, rows), self._store.entries, self._store.counted, {}
        with self._store.lock:
            for row, key in keys.items():
                if (entry := entries.get(key)) is not None:
                    entries.move_to_end(key)
                    found[row] = entry[0]
            if counted_as:
                counted.hits[counted_as] = counted.hits.get(counted_as, 0) + len(found)
                counted.misses[counted_as] = counted.misses.get(counted_as, 0) + len(keys) - len(found)
        return found

    def keep(self, role: str, vectors: Mapping[TokenRow, Vectors]) -> None:
        """Keeps copies of what was computed of these rows; drops what was used least recently beyond the bound."""
        store, keys, sized = self._store, self._keys(role, vectors), {}
        for row, each in vectors.items():
            size = _ENTRY_BYTES + sum([vector.nbytes + _ARRAY_BYTES for vector in each])
            if size <= store.max_bytes:
                sized[keys[row]] = tuple(map(np.array, each)), size
        with store.lock:
            for key, entry in sized.items():
                _, replaced_bytes = store.entries.pop(key, ((), 0))
                store.entries[key] = entry
                store.counted.bytes += entry[1] - replaced_bytes
            while store.counted.bytes > store.max_bytes:
                _, (_, size) = store.entries.popitem(last=False)
                store.counted.bytes -= size
                store.counted.evictions += 1
            store.counted.entries = len(store.entries)

    def _keys(self, role: str, rows: Iterable[TokenRow]) -> dict[TokenRow, bytes]:
        """The key of each row, once."""
        keys = {}
        for row in rows:
            content = role.encode() + array("i", row).tobytes()
            keys[row] = blake2b(content, digest_size=_KEY_BYTES, key=self._secret).digest()
        return keys
