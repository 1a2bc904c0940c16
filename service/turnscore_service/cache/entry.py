"""Entries: the pieces of one turn's score as bytes, and back. Refuses what it cannot read, and another key's entry.

format  u8
check   8 bytes, a hash of key and rest: shows an entry that was damaged or belongs to another key
count   u8
pieces  fingerprint (u8 length, bytes), value f64, tokens used and dropped u32, flags u8, warnings u8 (a bit each),
        percentile f64 where flagged, details (u8 count; lengths of the names u8 each, names under a mask, f64 each),
        vector (u16 count, f32 each) where flagged

The name of a detail may be a caller's own text: a FED quality of theirs. It is kept under a keystream of secret, key
and fingerprint, so that no such text lies readable in a Redis; without a secret, who knows this format can undo it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from math import isfinite

import numpy as np
from turnscore_core.scorers.parts import ScorePart
from turnscore_core.scorers.scorer import RawScore
from turnscore_core.scorers.turn_warnings import WARNINGS
from turnscore_wire import TokenCount

from turnscore_service.cache.key import ENTRY_FORMAT

MAX_PARTS = 64
"""Pieces in one entry: three times FED's qualities. Chosen."""
_CHECK_BYTES = 8
_HEAD = struct.Struct(f"<B{_CHECK_BYTES}sB")
_BODY = struct.Struct("<dIIBBB")
_NUMBER = struct.Struct("<d")
_WIDTH = struct.Struct("<H")
_VECTOR_TYPE = np.dtype("<f4")
_IS_COMPARABLE, _HAS_PERCENTILE, _HAS_VECTOR = 1, 2, 4


class UnreadableEntryError(Exception):
    """The bytes are no entry of this key."""


class StaleEntryError(Exception):
    """The bytes are an entry of another format."""


def encode_entry(key: str, parts: Mapping[bytes, ScorePart], secret: bytes = b"") -> bytes | None:
    """The pieces as bytes; at most `MAX_PARTS`, the last ones. None where a piece does not fit the format."""
    kept = list(parts.items())[-MAX_PARTS:]
    try:
        body = b"".join(_encode_part(key, fingerprint, part, secret) for fingerprint, part in kept)
    except (struct.error, ValueError):
        return None
    return _HEAD.pack(ENTRY_FORMAT, _check(key, body, secret), len(kept)) + body


def decode_entry(key: str, entry: bytes, secret: bytes = b"", vector_bytes: int = 0) -> dict[bytes, ScorePart]:
    """The pieces by fingerprint, each with a vector of that size. Raises StaleEntryError or UnreadableEntryError."""
    if entry[:1] != bytes([ENTRY_FORMAT]):
        raise StaleEntryError if entry else UnreadableEntryError
    try:
        _, check, count = _HEAD.unpack_from(entry)
        if check != _check(key, entry[_HEAD.size :], secret):
            raise UnreadableEntryError
        reader = _Reader(entry, _HEAD.size, key, secret)
        parts = dict(reader.read_part() for _ in range(count))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableEntryError from error
    if reader.place != len(entry) or any(len(part.raw.vector or b"") != vector_bytes for part in parts.values()):
        raise UnreadableEntryError
    return parts


def _check(key: str, body: bytes, secret: bytes) -> bytes:
    return blake2b(b"%d:%b%b" % (len(key), key.encode(), body), digest_size=_CHECK_BYTES, key=secret).digest()


def _mask(names: bytes, key: str, fingerprint: bytes, secret: bytes) -> bytes:
    """Puts the mask on, or takes it off."""
    seed = b"%d:%b%d:%b%b" % (len(secret), secret, len(key), key.encode(), fingerprint)
    stream = shake_256(seed).digest(len(names))
    return (int.from_bytes(names) ^ int.from_bytes(stream)).to_bytes(len(names))


def _encode_part(key: str, fingerprint: bytes, part: ScorePart, secret: bytes) -> bytes:
    raw, tokens = part.raw, part.tokens
    flags = _IS_COMPARABLE * raw.is_comparable | _HAS_PERCENTILE * (raw.percentile is not None)
    flags |= _HAS_VECTOR * (raw.vector is not None)
    warnings = sum(1 << WARNINGS.index(each) for each in raw.warnings)
    pieces = [
        bytes([len(fingerprint)]),
        fingerprint,
        _BODY.pack(raw.value, tokens.used, tokens.dropped, flags, warnings, len(raw.details)),
    ]
    if raw.percentile is not None:
        pieces.append(_NUMBER.pack(raw.percentile))
    if raw.details:
        names = [name.encode() for name in raw.details]
        pieces += bytes(map(len, names)), _mask(b"".join(names), key, fingerprint, secret)
        pieces.append(struct.pack(f"<{len(names)}d", *raw.details.values()))
    if raw.vector is not None:
        pieces += _WIDTH.pack(len(raw.vector) // _VECTOR_TYPE.itemsize), raw.vector
    return b"".join(pieces)


@dataclass(slots=True)
class _Reader:
    """Reads an entry from front to back; what is cut short raises struct.error or IndexError."""

    entry: bytes
    place: int
    key: str
    secret: bytes

    def read_part(self) -> tuple[bytes, ScorePart]:
        fingerprint = self._read_bytes()
        value, used, dropped, flags, warned, count = _BODY.unpack_from(self.entry, self.place)
        self.place += _BODY.size
        if not isfinite(value):
            raise UnreadableEntryError
        percentile = self._read_number() if flags & _HAS_PERCENTILE else None
        details = self._read_details(fingerprint, count) if count else {}
        warnings = tuple(each for place, each in enumerate(WARNINGS) if warned >> place & 1)
        vector = self._read_vector() if flags & _HAS_VECTOR else None
        raw = RawScore(
            value,
            details,
            percentile=percentile,
            is_comparable=bool(flags & _IS_COMPARABLE),
            warnings=warnings,
            vector=vector,
        )
        return fingerprint, ScorePart(raw, TokenCount.model_construct(used=used, dropped=dropped))

    def _read_details(self, fingerprint: bytes, count: int) -> dict[str, float]:
        lengths = self.entry[self.place : self.place + count]
        start = self.place + count
        self.place = start + sum(lengths)
        masked = self.entry[start : self.place]
        if len(masked) != sum(lengths) or len(lengths) != count:
            raise UnreadableEntryError
        names, end = _mask(masked, self.key, fingerprint, self.secret), 0
        details = {}
        for length in lengths:
            details[names[end : end + length].decode()] = self._read_number()
            end += length
        return details

    def _read_number(self) -> float:
        [number] = _NUMBER.unpack_from(self.entry, self.place)
        self.place += _NUMBER.size
        if not isfinite(number):
            raise UnreadableEntryError  # no scorer gives such a number: it would be answered as null
        return float(number)

    def _read_vector(self) -> bytes:
        [width] = _WIDTH.unpack_from(self.entry, self.place)
        start = self.place + _WIDTH.size
        self.place = start + width * _VECTOR_TYPE.itemsize
        vector = self.entry[start : self.place]
        if self.place > len(self.entry) or not np.isfinite(np.frombuffer(vector, _VECTOR_TYPE)).all():
            raise UnreadableEntryError
        return vector

    def _read_bytes(self) -> bytes:
        end = self.place + 1 + self.entry[self.place]
        found = self.entry[self.place + 1 : end]
        self.place = end
        return found
