"""Keys and entries of finished scores: what makes two turns equal, and the fragments of a score as bytes.

    turnscore:3:<namespace>:<bundle>:<version>:<identity>:<input>
              │                              │          └ hash of namespace and what the scorer reads of the turn
              │                              └ hash of kind, digest, graph, code, mark: bundles of one version differ
              └ the format of entries: another one is never read

Namespace, bundle and version are readable, so that a scorer's entries can be found by version and removed. A mark is
left where that was done: with another mark all keys are others, so that nothing from before is found again.

An entry, which is refused where it is damaged or another key's:

format  u8
check   8 bytes, a hash of key and rest: shows an entry that was damaged or belongs to another key
count   u8
fragments  fingerprint (u8 length, bytes), value f64, tokens used and dropped u32, flags u8, warnings u8 (a bit each),
        percentile f64 where flagged, details (u8 count; lengths of the names u8 each, names under a mask, f64 each),
        vector (u16 count, f32 each) where flagged

The name of a detail may be a caller's own text: a FED quality of theirs. It is kept under a keystream of secret, key
and fingerprint, so that no such text lies readable in a Redis; without a secret, who knows this format can undo it.
"""

import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from math import isfinite

import numpy as np

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import Fields, RawScore, count_tokens, pack_fields
from turnscore_core.scorers.turn_warnings import WARNINGS

ENTRY_FORMAT = 3  # raised whenever entries are laid out in another way, or scores mean something else

_PREFIX = f"turnscore:{ENTRY_FORMAT}"
PROBE_KEY = f"{_PREFIX}-probe"  # where it is tried whether a Redis can be read and written; no `key_pattern` matches it
_IDENTITY_BYTES = 12
_INPUT_BYTES = 18  # two of 2^72 different inputs would be expected to share a hash
_TEXT_BYTES = 24  # of a text's hash within an input's: longer than that, so that it adds nothing to what may be shared


class KeyMaker:
    """Makes the keys of one loaded scorer's turns. Resolves everything that does not depend on the turn once."""

    def __init__(self, loaded: LoadedScorer, secret: bytes = b"") -> None:
        """With `secret`, at most 64 bytes, only its owner can test whether a guessed text was scored."""
        self._secret = secret
        self._fields = loaded.kind, loaded.bundle.digest, loaded.variant, loaded.code_version
        self._model = loaded.bundle.manifest.reference
        self._mark = b""
        self._identity = self._identify()

    def take_mark(self, mark: bytes) -> bool:
        """Makes the keys that belong to this mark; whether it is another than before."""
        if mark == self._mark:
            return False
        self._mark = mark
        self._identity = self._identify()
        return True

    def key(self, namespace: str, inputs: Fields, hashes: "TextHashes | None" = None) -> str:
        """The key of a turn of which the scorer reads `inputs`; `hashes` are those of its request."""
        hashes = TextHashes() if hashes is None else hashes
        if hashes.latest_inputs is not inputs or hashes.latest_namespace != namespace:  # else as for the pass's others
            # As by `pack_fields`, with the hash of each text in its place.
            packed = [b"s", hashes[namespace]]
            for field in inputs:
                if isinstance(field, str):
                    packed += b"s", hashes[field]
                elif isinstance(field, tuple):
                    packed += b"t%d:" % len(field), *map(hashes.__getitem__, field)
                else:
                    packed.append(pack_fields((field,)))
            hashes.latest_namespace, hashes.latest_inputs = namespace, inputs
            hashes.latest = _hash(b"".join(packed), _INPUT_BYTES, self._secret)
        return f"{_PREFIX}:{namespace}:{self._model}:{self._identity}:{hashes.latest}"

    def _identify(self) -> str:
        return _hash(pack_fields((*self._fields, self._mark.hex())), _IDENTITY_BYTES)


class TextHashes(dict[str, bytes]):
    """The hashes of one request's texts. Each text is hashed once, however many of its turns and scorers read it."""

    latest_namespace: str = ""
    latest_inputs: Fields | None = None
    latest: str = ""  # the hash of these, for other scorers of the pass that ask next

    def __missing__(self, text: str) -> bytes:
        hashed = self[text] = blake2b(text.encode(), digest_size=_TEXT_BYTES).digest()
        return hashed


def key_pattern(model: str) -> str:
    """A glob that matches the keys of the model `name:version` in every namespace, and no others."""
    return f"{_PREFIX}:*:{model}:*"


def mark_key(model: str) -> str:
    """Where the mark of the model `name:version` stands; no `key_pattern` matches it."""
    return f"{_PREFIX}-cleared:{model}"


def _hash(content: bytes, size: int, secret: bytes = b"") -> str:
    return urlsafe_b64encode(blake2b(content, digest_size=size, key=secret).digest()).decode()


MAX_FRAGMENTS = 64  # fragments in one entry: three times FED's qualities
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


def encode_entry(key: str, fragments: Mapping[bytes, RawScore], secret: bytes = b"") -> bytes | None:
    """The fragments as bytes; at most `MAX_FRAGMENTS`, the last ones. None where one does not fit the format."""
    kept = list(fragments.items())[-MAX_FRAGMENTS:]
    pieces: list[bytes] = []
    try:
        for fingerprint, raw in kept:
            flags = _IS_COMPARABLE * raw.is_comparable | _HAS_PERCENTILE * (raw.percentile is not None)
            flags |= _HAS_VECTOR * (raw.vector is not None)
            warnings = sum([1 << WARNINGS.index(each) for each in raw.warnings])
            pieces += bytes([len(fingerprint)]), fingerprint
            pieces.append(_BODY.pack(raw.value, raw.tokens.used, raw.tokens.dropped, flags, warnings, len(raw.details)))
            if raw.percentile is not None:
                pieces.append(_NUMBER.pack(raw.percentile))
            if raw.details:
                names = [name.encode() for name in raw.details]
                pieces += bytes(map(len, names)), _mask(b"".join(names), key, fingerprint, secret)
                pieces.append(struct.pack(f"<{len(names)}d", *raw.details.values()))
            if raw.vector is not None:
                pieces += _WIDTH.pack(len(raw.vector) // _VECTOR_TYPE.itemsize), raw.vector
    except (struct.error, ValueError):
        return None
    body = b"".join(pieces)
    return _HEAD.pack(ENTRY_FORMAT, _check(key, body, secret), len(kept)) + body


def decode_entry(key: str, entry: bytes, secret: bytes = b"", vector_bytes: int = 0) -> dict[bytes, RawScore]:
    """The fragments by fingerprint, each with a vector of that size. Raises StaleEntryError or UnreadableEntryError."""
    if entry[:1] != bytes([ENTRY_FORMAT]):
        raise StaleEntryError if entry else UnreadableEntryError
    try:
        _, check, count = _HEAD.unpack_from(entry)
        if check != _check(key, entry[_HEAD.size :], secret):
            raise UnreadableEntryError
        reader = _Reader(entry, _HEAD.size, key, secret)
        found = dict(reader.read_fragment() for _ in range(count))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnreadableEntryError from error
    if reader.place != len(entry) or any(len(raw.vector or b"") != vector_bytes for raw in found.values()):
        raise UnreadableEntryError
    return found


def _check(key: str, body: bytes, secret: bytes) -> bytes:
    return blake2b(b"%d:%b%b" % (len(key), key.encode(), body), digest_size=_CHECK_BYTES, key=secret).digest()


def _mask(names: bytes, key: str, fingerprint: bytes, secret: bytes) -> bytes:
    """Puts the mask on, or takes it off."""
    seed = b"%d:%b%d:%b%b" % (len(secret), secret, len(key), key.encode(), fingerprint)
    stream = shake_256(seed).digest(len(names))
    return (int.from_bytes(names) ^ int.from_bytes(stream)).to_bytes(len(names))


@dataclass(slots=True)
class _Reader:
    """Reads an entry from front to back; what is cut short raises struct.error or IndexError."""

    entry: bytes
    place: int
    key: str
    secret: bytes

    def read_fragment(self) -> tuple[bytes, RawScore]:
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
            vector=vector,
            tokens=count_tokens(used, dropped),
            warnings=warnings,
        )
        return fingerprint, raw

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
