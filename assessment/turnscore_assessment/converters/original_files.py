"""Original files: JSON, JSON lines, or CSV, gzipped or not. Errors name the file and the place."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from turnscore_assessment.errors import BadDataError
from turnscore_assessment.files import UNREADABLE, open_text

Record = dict[str, Any]
LARGEST_CELL = 1 << 24
"""Most characters of a CSV cell, which may hold a whole dialogue. Chosen."""


def read_json_list(path: Path) -> Iterator[tuple[int, Record]]:
    """(place from 1, object) of a file that is a list of objects, or of JSON lines."""
    text = _read(path)
    if text.lstrip().startswith("["):
        found = list(enumerate(_parse(text, path), start=1))
    else:  # lines end at \n alone: a JSON text may hold what else Python takes for a line's end, such as U+2028
        lines = enumerate(text.split("\n"), start=1)
        found = [(place, _parse(line, path, place)) for place, line in lines if line.strip()]
    for place, record in found:
        if not isinstance(record, dict):
            raise BadDataError(path, place, "is not a JSON object")
        yield place, record


def read_json_object(path: Path) -> Record:
    found = _parse(_read(path), path)
    if not isinstance(found, dict):
        raise BadDataError(path, 1, "is not a JSON object")
    return found


def read_csv(path: Path) -> Iterator[tuple[int, Record]]:
    """(row from 2, cells by column)."""
    csv.field_size_limit(LARGEST_CELL)
    with _open(path) as file:
        try:
            yield from enumerate(csv.DictReader(file), start=2)
        except (csv.Error, OSError, *UNREADABLE) as error:
            raise BadDataError(path, 0, f"cannot be read ({error})") from error


def field(record: Mapping[str, Any], name: str, kind: type, path: Path, place: int) -> Any:
    """A field of that type; BadDataError naming it."""
    value = record.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadDataError(path, place, f"`{name}` is {type(value).__name__}, expected {kind.__name__}")
    return value


def _parse(text: str, path: Path, line: int | None = None) -> Any:
    """What the JSON says; BadDataError naming the line, by default the one in which the text is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadDataError(path, line or error.lineno, f"is not JSON ({error.msg})") from error


def _open(path: Path) -> IO[str]:
    try:
        return open_text(path, newline="")
    except OSError as error:
        raise BadDataError(path, 0, f"cannot be read ({error})") from error


def _read(path: Path) -> str:
    with _open(path) as file:
        try:
            return file.read()
        except (OSError, *UNREADABLE) as error:
            raise BadDataError(path, 0, f"cannot be read ({error})") from error
