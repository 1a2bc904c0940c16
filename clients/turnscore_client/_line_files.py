"""Line files: reads JSON lines one by one, plain or gzip, and opens the output alike. Never holds a whole file."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


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


def open_output(path: Path) -> AbstractContextManager[TextIO]:
    """The file to write, emptied, packed if it ends in `.gz`; `-` is the standard output, which stays open."""
    if not is_file(path):
        return nullcontext(sys.stdout)
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")
