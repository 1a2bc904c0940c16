"""Original files: JSON, a JSON object a line, or CSV, gzipped or not. A broken one is named, with its place."""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from turnscore_assessment.errors import BadDataError

Record = dict[str, Any]
LARGEST_CELL = 1 << 24
"""Characters of a CSV cell, which a whole dialogue may be. Chosen."""


def read_json_list(path: Path) -> Iterator[tuple[int, Record]]:
    """(place from 1, object) of a file that is a list of objects, or a line per object."""
    with _open(path) as file:
        text = _read(file, path)
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    except json.JSONDecodeError as error:
        raise BadDataError(path, error.lineno, f"is not JSON ({error.msg})") from error
    for place, record in enumerate(found, start=1):
        if not isinstance(record, dict):
            raise BadDataError(path, place, "is not a JSON object")
        yield place, record


def read_json_object(path: Path) -> Record:
    """The object that a file is."""
    with _open(path) as file:
        text = _read(file, path)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadDataError(path, error.lineno, f"is not JSON ({error.msg})") from error
    if not isinstance(found, dict):
        raise BadDataError(path, 1, "is not a JSON object")
    return found


def read_csv(path: Path) -> Iterator[tuple[int, Record]]:
    """(row from 2, cells by column)."""
    csv.field_size_limit(LARGEST_CELL)
    with _open(path) as file:
        try:
            yield from enumerate(csv.DictReader(file), start=2)
        except (csv.Error, UnicodeDecodeError, OSError, EOFError) as error:
            raise BadDataError(path, 0, f"cannot be read ({error})") from error


def field(record: Mapping[str, Any], name: str, kind: type, path: Path, place: int) -> Any:
    """A field of that type; BadDataError naming it."""
    value = record.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadDataError(path, place, f"`{name}` is {type(value).__name__}, expected {kind.__name__}")
    return value


def _open(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8", newline=""))
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise BadDataError(path, 0, f"cannot be read ({error})") from error


def _read(file: IO[str], path: Path) -> str:
    try:
        return file.read()
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise BadDataError(path, 0, f"cannot be read ({error})") from error
