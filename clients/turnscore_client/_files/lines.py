"""Lines: reads JSON lines one by one, plain, gzip or from a pipe. Never holds a whole file."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One line as it lies in the file, its number from 1, and how far into the file reading has come (0 for a pipe)."""

    number: int
    raw: bytes
    position_bytes: int


def is_file(path: Path) -> bool:
    """Whether it is not `-`, which stands for the standard input or output."""
    return str(path) != "-"


def size_of(path: Path) -> int | None:
    """Bytes in the file to read; None where that is not known before the end."""
    return (path.stat().st_size if is_file(path) else 0) or None


def read_lines(path: Path) -> Iterator[Line]:
    """The lines that are not blank; of a `.gz` file the unpacked ones. Raises OSError or EOFError for a broken file.

    `-` is the standard input, which stays open.
    """
    opened = path.open("rb") if is_file(path) else nullcontext(sys.stdin.buffer)
    with opened as file, gzip.open(file) if path.suffix == ".gz" else nullcontext(file) as unpacked:
        for number, raw in enumerate(unpacked, start=1):
            if not raw.strip():
                continue
            yield Line(number, raw, file.tell() if file.seekable() else 0)
