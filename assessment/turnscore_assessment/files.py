"""Files: JSON lines read row by row, text that may be gzipped, CSV for spreadsheets, JSON."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from turnscore_wire.json_lines import read_json_line

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import jsonable

# What reading a text raises whose bytes are broken or are no UTF-8.
UNREADABLE = (UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error)

# First characters of a cell that a spreadsheet would take for a formula (OWASP, CSV injection).
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


# The longest line, and the longest CSV cell, that is read. Chosen: far above a dialogue of the most turns.
LINE_CHARACTERS = 16 * 1024 * 1024

Form = TypeVar("Form")


class StrictForm(BaseModel):
    """A form that nothing changes; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line from 1, object) of every line that is not blank; BadFileError where a line is no object."""
    number = 0
    try:
        with open_text(path) as file:
            while line := file.readline(LINE_CHARACTERS + 1):
                number += 1
                if len(line) > LINE_CHARACTERS:
                    raise BadFileError(path, number, f"is longer than {LINE_CHARACTERS} characters")
                if line.strip():
                    yield number, _parse_row(path, number, line)
    except FileNotFoundError as error:
        raise BadFileError(path, 0, "does not exist") from error
    except (OSError, *UNREADABLE) as error:
        raise BadFileError(path, number + 1, f"cannot be read ({error})") from error


def read_document(path: Path) -> Any:
    """What a JSON file holds, unpacked where its name ends in `.gz`; BadFileError where it cannot be read."""
    try:
        with open_text(path) as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError, *UNREADABLE) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error


def check_row(validate: Callable[[Any], Form], path: Path, number: int, fields: object, within: str = "") -> Form:
    """The row as pydantic validates it; BadFileError names the field that is wrong, a part of `within`."""
    try:
        return validate(fields)
    except ValidationError as error:
        raise BadFileError(path, number, describe_problem(error, within)) from None


def describe_problem(error: ValidationError, within: str = "") -> str:
    """The first field that is wrong, and how: `criteria.0.low: must be below high`."""
    errors: Any = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        *form, name = first["loc"]
        extra = [each["loc"] for each in errors if each["type"] == "extra_forbidden"]
        near = get_close_matches(str(name), [unknown for *within_form, unknown in extra if within_form == form], n=1)
        message += "".join(f"; there is no {unknown!r}, did you mean {name!r}?" for unknown in near)
    place = ".".join(filter(None, (within, *map(str, first["loc"]))))
    return f"{place}: {message[:1].lower()}{message[1:]}" if place else message


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """The file's text, unpacked where its name ends in `.gz`; a byte-order mark is left out. For CSV, newline is ""."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


@dataclass(frozen=True)
class CsvTable:
    """The rows of a CSV file, cells by column; they count from 2, as in a spreadsheet."""

    columns: Sequence[str]
    rows: Iterable[tuple[int, dict[str, Any]]]
    separator: str


def read_csv(path: Path, needed: Sequence[str] = (), separators: str = ",") -> CsvTable:
    """The table, whose first line names its columns; BadFileError where it cannot be read or lacks a needed column."""
    with _open_csv(path, needed, separators) as table:
        return CsvTable(table.columns, list(table.rows), table.separator)


def stream_csv(path: Path, needed: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of `read_csv`, one at a time."""
    with _open_csv(path, needed, ",") as table:
        yield from table.rows


@contextmanager
def _open_csv(path: Path, needed: Sequence[str], separators: str) -> Iterator[CsvTable]:
    """The table, whose rows are read as they are asked for."""
    csv.field_size_limit(LINE_CHARACTERS)
    line = 0
    try:
        with open_text(path, newline="") as file:
            separator = max(separators, key=file.readline(LINE_CHARACTERS).count)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=separator)
            columns = list(reader.fieldnames or ())
            missing = [name for name in needed if name not in columns]
            if missing:
                raise BadFileError(path, 1, f"has no column `{missing[0]}`; the first line must name the columns")

            def read() -> Iterator[tuple[int, dict[str, Any]]]:
                nonlocal line
                for number, row in enumerate(reader, start=2):
                    line = reader.line_num
                    yield number, row

            yield CsvTable(columns, read(), separator)
    except FileNotFoundError as error:
        raise BadFileError(path, 0, "does not exist") from error
    except (csv.Error, OSError, *UNREADABLE) as error:
        raise BadFileError(path, line + 1, f"cannot be read ({error})") from error


def write_rows(path: Path, rows: Iterable[BaseModel | Mapping[str, Any]]) -> None:
    """Writes a line of JSON per row, defaults of models left out; the file appears whole or not at all.

    Gzipped, byte for byte the same each time, where the name ends in `.gz`. No two rows are in memory at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.suffix == ".gz" else nullcontext(file)
        with packed as lines:
            for row in rows:
                text = (
                    row.model_dump_json(exclude_defaults=True)
                    if isinstance(row, BaseModel)
                    else json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                )
                lines.write(text.encode() + b"\n")
    partial.replace(path)


def write_text(path: Path, text: str) -> None:
    """Writes the file, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


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


def _parse_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        return read_json_line(line.encode())
    except ValueError as error:
        raise BadFileError(path, number, str(error).removeprefix("the line ")) from error


def _guard(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA_STARTS) else cell
