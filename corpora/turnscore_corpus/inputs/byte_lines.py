"""Lines of bytes with the position of each line's end. A line of any length takes bounded memory."""

from collections.abc import Iterator
from typing import Any

MOST_BYTES = 128 * 1024 * 1024
"""Most bytes of a line: more than the largest legal dialogue takes, written as JSON with every character escaped (1,024
turns of 8,000 characters of 12 bytes)."""
_CHUNK_BYTES = 1024 * 1024


def read_lines(stream: Any, begin: int = 0) -> Iterator[tuple[bytes | None, int]]:
    """The lines with their ends, and the position behind each; None for a line longer than any row may be.

    Raises OSError as the stream does, for a torn file too.
    """
    place, rest, is_too_long = begin, bytearray(), False
    while chunk := stream.read(_CHUNK_BYTES):
        first = 0
        while (found := chunk.find(b"\n", first)) >= 0:
            piece = chunk[first : found + 1]
            place += len(piece)
            if is_too_long or len(rest) + len(piece) > MOST_BYTES:
                place += len(rest)
                yield None, place
            elif rest:
                place += len(rest)
                yield bytes(rest) + piece, place
            else:
                yield piece, place
            rest, is_too_long, first = bytearray(), False, found + 1
        if len(rest) + len(chunk) - first > MOST_BYTES:
            is_too_long = True
            place += len(rest) + len(chunk) - first
            rest = bytearray()
        elif is_too_long:
            place += len(chunk) - first
        else:
            rest += chunk[first:]
    if rest or is_too_long:
        yield (None if is_too_long else bytes(rest)), place + len(rest)
