"""Kept vectors: what a model computed of a text alone, in this process, to use again wherever the text is read.

Bounded in bytes, least recently used out first. No text stays: a text's key is a hash under a secret of this process,
over the encoder's digest and the token ids, so the vectors of one encoder are never found for another.
"""

import os
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock

import numpy as np

from turnscore_core.inference.onnx_backend import Array
from turnscore_core.load_settings import KEPT_VECTOR_BYTES

# Two of 2^64 different texts would be expected to share a key. Chosen.
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
    """The vectors of all encoders of one process. Safe in threads; its methods never wait for a computation."""

    def __init__(self, max_bytes: int = KEPT_VECTOR_BYTES) -> None:
        self.max_bytes = max_bytes
        self._counts = VectorCounts()
        self._secret = os.urandom(32)
        self.entries: OrderedDict[bytes, tuple[Vectors, int]] = OrderedDict()
        """Vectors and their bytes, the least recently used first."""
        self._lock = Lock()

    def of(self, encoder: str) -> "KeptVectors":
        """The part of it for the encoder of that digest."""
        return KeptVectors(self, blake2b(encoder.encode(), digest_size=32, key=self._secret).digest())

    def counts(self) -> VectorCounts:
        """A copy of what was counted until now."""
        with self._lock:
            return replace(self._counts, hits=dict(self._counts.hits), misses=dict(self._counts.misses))

    def find(self, role: str, keys: Sequence[bytes]) -> list[Vectors | None]:
        """What is kept under each key, in order; what was found is the most recently used."""
        found: list[Vectors | None] = [None] * len(keys)
        hits, counts = 0, self._counts
        with self._lock:
            for place, key in enumerate(keys):
                if (entry := self.entries.get(key)) is not None:
                    self.entries.move_to_end(key)
                    found[place] = entry[0]
                    hits += 1
            counts.hits[role] = counts.hits.get(role, 0) + hits
            counts.misses[role] = counts.misses.get(role, 0) + len(keys) - hits
        return found

    def renew(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each is kept, which makes it the most recently used."""
        kept = [False] * len(keys)
        with self._lock:
            for place, key in enumerate(keys):
                if key in self.entries:
                    self.entries.move_to_end(key)
                    kept[place] = True
        return kept

    def keep(self, vectors: Mapping[bytes, Vectors]) -> None:
        """Keeps copies of these; drops what was used least recently beyond the bound, at once."""
        sized: dict[bytes, tuple[Vectors, int]] = {}
        for key, each in vectors.items():
            size = _ENTRY_BYTES + sum([vector.nbytes + _ARRAY_BYTES for vector in each])
            if size <= self.max_bytes:
                sized[key] = tuple(map(np.array, each)), size
        with self._lock:
            for key, entry in sized.items():
                self._drop(key)
                self.entries[key] = entry
                self._counts.bytes += entry[1]
            while self._counts.bytes > self.max_bytes:
                self._drop(next(iter(self.entries)))
                self._counts.evictions += 1
            self._counts.entries = len(self.entries)

    def _drop(self, key: bytes) -> None:
        if (dropped := self.entries.pop(key, None)) is not None:
            self._counts.bytes -= dropped[1]


class KeptVectors:
    """One encoder's part of a store."""

    def __init__(self, store: VectorStore, secret: bytes) -> None:
        self._store = store
        self._secret = secret

    @property
    def has_room(self) -> bool:
        """Whether anything may be kept at all."""
        return self._store.max_bytes > 0

    def find_missing(self, role: str, rows: Iterable[TokenRow]) -> list[TokenRow]:
        """The rows that are not kept in that role; the others become the most recently used, and count as no hits."""
        named = list(rows)
        kept = self._store.renew([self._key(role, row) for row in named])
        return [row for row, is_kept in zip(named, kept, strict=True) if not is_kept]

    def find(
        self, role: str, rows: Iterable[TokenRow], counted_as: str | None = None
    ) -> dict[TokenRow, Vectors | None]:
        """What is kept of each row of token ids in that role; hits and misses are counted under it, or otherwise."""
        named = list(rows)
        keys = [self._key(role, row) for row in named]
        return dict(zip(named, self._store.find(counted_as or role, keys), strict=True))

    def keep(self, role: str, vectors: Mapping[TokenRow, Vectors]) -> None:
        """Keeps copies of what was computed of these rows."""
        self._store.keep({self._key(role, row): each for row, each in vectors.items()})

    def _key(self, role: str, row: TokenRow) -> bytes:
        content = role.encode() + array("i", row).tobytes()
        return blake2b(content, digest_size=_KEY_BYTES, key=self._secret).digest()
