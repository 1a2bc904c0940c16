"""Line files: reads JSON lines one by one, plain or gzip, and opens the output. Never holds a whole file."""

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


def read_lines(path: Path) -> Iterator[Line]:
    """The lines that are not blank; of a `.gz` file the unpacked ones. Raises OSError or EOFError for a broken file."""
    is_packed = path.suffix == ".gz"
    with path.open("rb") as file, gzip.open(file) if is_packed else nullcontext(file) as unpacked:
        for number, raw in enumerate(unpacked, start=1):
            if not raw.strip():
                continue
            yield Line(number, raw, file.tell() if file.seekable() else 0)


def open_output(path: Path) -> AbstractContextManager[TextIO]:
    """The file to write, emptied; `-` is the standard output, which stays open."""
    if str(path) == "-":
        return nullcontext(sys.stdout)
    return path.open("w", encoding="utf-8")
