"""The output: a file that rows are added to, one for each line of the input and in its order. Overwrites nothing.

It is also the memory of the run: what it holds is done. Whoever does more with each row than write it (send its scores
elsewhere, say) does that before `append`, and goes on, like `turnscore score`, behind `rows_in(path)`: after a crash at
most the rows in flight are done a second time, and none is left out.
"""

import gzip
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from turnscore_client._files.lines import is_file

Row = dict[str, Any]

_PACK_SECONDS = 1.0
"""So often what is packed is written through, at the cost of a few bytes. Chosen: so much work a crash may cost."""
_BLOCK_BYTES = 64 * 1024


class NotOurOutputError(Exception):
    """The file exists and is not what this command wrote for this input; the sentence says what is wrong."""


def rows_in(path: Path) -> Iterator[Row]:
    """The rows of an output, without a last one that was cut off. Nothing where the file is not there yet.

    Raises NotOurOutputError for a file with anything else in it.
    """
    if not is_file(path) or not path.exists():
        return
    last = 0
    for number, raw in enumerate(_whole_lines(path), start=1):
        try:
            row = json.loads(raw)
        except ValueError:
            row = None
        line = row.get("line") if isinstance(row, dict) else None
        if not isinstance(line, int) or line <= last:
            raise NotOurOutputError(f"exists, and its line {number} is no row of this command; name another file")
        last = line
        yield row


class RowOutput:
    """An output that this run alone writes. `append` returns once the row is on its way to the disk."""

    def __init__(self, path: Path, file: BinaryIO, *, is_new: bool) -> None:
        self._path = path
        self._file = file
        self._is_new = is_new
        self._is_packed = path.suffix == ".gz"
        self._packer: Any = None
        self._has_begun = False
        self._through_at = time.monotonic()

    def rows(self) -> Iterator[Row]:
        """What `rows_in` gives; no other run adds to it while this one is open."""
        return rows_in(self._path)

    def append(self, row: Row) -> None:
        """Adds one row."""
        self.begin()
        raw = json.dumps(row, allow_nan=False).encode() + b"\n"
        if self._is_packed:
            self._packer = self._packer or zlib.compressobj(wbits=31)
            raw = self._packer.compress(raw)
            if time.monotonic() - self._through_at >= _PACK_SECONDS:
                raw += self._packer.flush(zlib.Z_SYNC_FLUSH)
                self._through_at = time.monotonic()
        self._file.write(raw)
        self._file.flush()

    def close(self) -> None:
        """Writes what is still held, and lets other runs write."""
        if self._packer is not None:
            self._file.write(self._packer.flush(zlib.Z_FINISH))
        self._file.flush()
        if is_file(self._path):
            if self._is_new and not self._has_begun:
                self._path.unlink()
            self._file.close()

    def begin(self) -> None:
        """Takes away the cut-off end that a crash left; a file that was made for this run stays from here on."""
        if self._has_begun:
            return
        self._has_begun = True
        if not is_file(self._path):
            return
        if not self._is_packed:
            if (end := _end_of_whole_lines(self._path)) < self._path.stat().st_size:
                os.truncate(self._file.fileno(), end)
        elif not _is_whole(self._path):
            whole = self._path.with_name(f".{self._path.name}.whole")
            with gzip.open(whole, "wb") as kept:
                kept.writelines(_whole_lines(self._path))
            locked = whole.open("ab")
            _lock(locked)  # before it gets the output's name, so that no other run finds it unlocked
            whole.replace(self._path)
            self._file.close()
            self._file = locked


@contextmanager
def open_rows(path: Path) -> Iterator[RowOutput]:
    """The output, locked before anything of it is read; packed if it ends in `.gz`; `-` is the standard output.

    Nothing that is there changes before `begin`, and a file that is made here goes again without it. Raises OSError,
    and NotOurOutputError where another run is writing it.
    """
    file, is_new = _open_alone(path) if is_file(path) else (sys.stdout.buffer, False)
    output = RowOutput(path, file, is_new=is_new)
    try:
        yield output
    finally:
        output.close()


def _open_alone(path: Path) -> tuple[BinaryIO, bool]:
    """The file to add to, locked, and whether it is new."""
    while True:
        is_new = not path.exists()
        file = path.open("ab")
        try:
            _lock(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file, is_new
        except FileNotFoundError:
            pass  # the run that had the lock took its empty file away
        except BaseException:
            file.close()
            raise
        file.close()  # the run that had the lock put another file in its place


def _lock(file: BinaryIO) -> None:
    """Keeps a second run from writing between, where the system has such locks."""
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotOurOutputError("is being written by another run") from None


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The lines that end; of a packed file that breaks off those before."""
    broken = suppress(EOFError, zlib.error, gzip.BadGzipFile)
    with broken, gzip.open(path) if path.suffix == ".gz" else path.open("rb") as unpacked:
        for raw in unpacked:
            if raw.endswith(b"\n"):
                yield raw


def _end_of_whole_lines(path: Path) -> int:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - _BLOCK_BYTES)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


def _is_whole(path: Path) -> bool:
    try:
        with gzip.open(path) as unpacked:
            return all(raw.endswith(b"\n") for raw in unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
