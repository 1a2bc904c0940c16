"""Files for people and spreadsheets: text that may be gzipped, CSV, JSON. Decides no content."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from turnscore_assessment.figures import jsonable

UNREADABLE = (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error)
"""What reading a text raises whose bytes are broken or are no UTF-8."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet would take for a formula (OWASP, CSV injection)."""


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """The file's text, unpacked where its name ends in `.gz`; a byte-order mark is left out. For CSV, newline is ""."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


def write_packed(path: Path, text: str) -> None:
    """Writes the file; gzipped, byte for byte the same each time, where the name ends in `.gz`."""
    content = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def write_text(path: Path, text: str) -> None:
    """Writes the file, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_all(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    """Writes one file per name, replacing old ones; returns their paths."""
    for name, content in contents.items():
        write_text(folder / name, content)
    return [folder / name for name in contents]


def to_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table as CSV, the only way this project writes one.

    A text that a spreadsheet would take for a formula gets an apostrophe before it, which `unguard` takes away again;
    numbers stay numbers.
    """
    file = io.StringIO()
    # Python's writer quotes the characters of its line terminator only; "\r\n" makes it quote both of them.
    writer = csv.writer(file, lineterminator="\r\n")
    lines = []
    for row in (head, *rows):
        writer.writerow([_guard(cell) for cell in row])
        lines.append(file.getvalue().removesuffix("\r\n") + "\n")
        file.seek(0)
        file.truncate()
    return "".join(lines)


def unguard(cell: str) -> str:
    """The text that `to_csv` wrote as this cell."""
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA_STARTS) else cell


def to_json_text(document: Any) -> str:
    """The document as JSON: non-finite numbers are null, intervals are objects."""
    return json.dumps(jsonable(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _guard(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA_STARTS) else cell
