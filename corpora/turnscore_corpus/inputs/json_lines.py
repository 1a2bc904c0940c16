"""JSON lines: every line is a row, numbered as in the file. A line that is not JSON is a row that cannot be read."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, NoReturn

from turnscore_corpus.errors import BadInputError
from turnscore_corpus.inputs.byte_lines import MOST_BYTES, read_lines
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.input_files import InputFile
from turnscore_corpus.inputs.raw_record import Mark, RawRecord

_LOOKED_AT = 100
"""Lines that say which fields there are. Chosen: a field that stands in fewer than one in a hundred is looked for in
vain, and can be left unnamed."""


class JsonLines:
    """The lines of one file, plain or packed."""

    def __init__(self, file: InputFile, columns: Columns) -> None:
        self._file = file
        self._columns = columns

    def marks(self) -> Iterator[Mark]:
        """One mark for each line, with the dialogue's name where a row is a turn."""
        self._check_columns()
        names = self._columns.row == "turn"
        before = 0
        for raw, end in self._lines(0):
            fields = _parse(raw)[0] if names and raw is not None and raw.strip() else None
            yield Mark(end - before, None if self._file.packing else end, _name_in(fields, self._columns))
            before = end

    def records(self, start: int, offset: int | None) -> Iterator[RawRecord]:
        """The lines from there on. A blank line is a record without fields or fault."""
        for row, (raw, _) in enumerate(self._lines(offset or 0), start=start + 1):
            if raw is None:
                yield RawRecord(row=row, fields=None, fault=f"the line has more than {MOST_BYTES} bytes")
            elif not raw.strip():
                yield RawRecord(row=row, fields=None)
            else:
                fields, fault = _parse(raw)
                yield RawRecord(row=row, fields=fields, fault=fault)

    def restarts_at(self, row: int) -> int:
        """Always the first row: only a mark knows where a line lies."""
        return 0

    def _check_columns(self) -> None:
        """Raises BadColumnsError where none of the first lines has a column that was named."""
        first = (_parse(raw)[0] for raw, _ in islice(self._lines(0), _LOOKED_AT) if raw is not None and raw.strip())
        known = list(dict.fromkeys(chain.from_iterable(fields for fields in first if fields is not None)))
        if known:
            self._columns.needed(self._file.place, known)

    def _lines(self, offset: int) -> Iterator[tuple[bytes | None, int]]:
        try:
            with self._file.open() if self._file.packing else self._file.open_for_seeking() as stream:
                if offset:
                    stream.seek(offset)
                yield from read_lines(stream, offset)
        except OSError as error:
            raise BadInputError(f"{self._file.place} cannot be read to its end: {error}") from None


def _name_in(fields: Mapping[str, Any] | None, columns: Columns) -> str | None:
    name = None if fields is None else fields.get(columns.id_column)
    return None if name is None else str(name) or None


def _parse(raw: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
    """The line's object, or why there is none."""
    try:
        fields = json.loads((raw or b"").decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else _reason(error)
        return None, f"the line is not JSON: {reason}"
    return (fields, None) if isinstance(fields, dict) else (None, "the line is not a JSON object")


def _reason(error: Exception) -> str:
    """The message without the line's content, which an error of decoding repeats."""
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is larger than a number can be")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")
