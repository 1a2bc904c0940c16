"""Fields: what a scorer reads of a turn as bytes from which every field can be read again. Pure; hashes, keeps nothing.

Each field begins with its type and its length, so that no two different sequences of fields give the same bytes.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from turnscore_wire import Turn

Field = str | int | tuple[str, ...]
Fields = tuple[Field, ...]

FINGERPRINT_BYTES = 12
"""Two of the parts that one turn can have share a fingerprint with probability 2^-96. Chosen."""


def pack_fields(fields: Iterable[Field]) -> bytes:
    """The fields as bytes: type, length and content of each, in order. An int must fit 64 bits."""
    return b"".join(map(_pack_field, fields))


def fingerprint(fields: Iterable[Field]) -> bytes:
    """`FINGERPRINT_BYTES` bytes that stand for the fields."""
    return blake2b(pack_fields(fields), digest_size=FINGERPRINT_BYTES).digest()


def context_fields(context: Sequence[Turn]) -> Fields:
    """Everything of a context: who spoke, and the texts."""
    return tuple(turn.speaker for turn in context), tuple(turn.text for turn in context)


def count_chars(fields: Iterable[Field]) -> int:
    """The characters of all texts together."""
    return sum(map(_count_chars, fields))


def _count_chars(field: Field) -> int:
    if isinstance(field, tuple):
        return sum(map(len, field))
    return 0 if isinstance(field, int) else len(field)


def _pack_field(field: Field) -> bytes:
    if isinstance(field, str):
        content = field.encode()
        return b"s%d:%b" % (len(content), content)
    if isinstance(field, tuple):
        # Lengths first and all texts in one piece: a context of a thousand turns is packed without a loop in Python.
        content = "".join(field).encode()
        lengths = struct.pack(f"<{len(field)}I", *map(len, field))
        return b"t%d:%b%d:%b" % (len(field), lengths, len(content), content)
    return b"i" + struct.pack("<q", field)
