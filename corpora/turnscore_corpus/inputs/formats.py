"""The rows of Parquet, JSON lines and CSV files in order, and from where reading can begin."""

import codecs
import csv
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, islice, repeat
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from turnscore_client._files.rows import find_separator
from turnscore_wire.json_lines import read_json_line

from turnscore_corpus.inputs.files import MOST_BYTES, BadInputError, Columns, InputFile, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One row: its number from 1, and its fields or why they cannot be read."""

    row: int
    fields: Mapping[str, Any] | None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a row, for planning."""

    size_bytes: int  # bytes of the row, unpacked; an estimate where the rows are not read
    end: int | None  # the position of the next row in the file; None where reading cannot begin there
    dialogue: str | None = None  # the dialogue that the row belongs to, where a row is a turn and names one


def text_of(cell: object) -> str | None:
    """A cell as text that every output can hold."""
    return None if cell is None else str(cell).encode("utf-8", "replace").decode()


Row = tuple[dict[str, Any], str | None]  # the fields that can be read, and the fault of the first that cannot


def rows_of(batch: Any) -> Iterator[Row]:
    """The batch's rows in order. Nanoseconds are cut to microseconds, the resolution of Python's times."""
    batch = batch.cast(pa.schema([_retyped(each) for each in batch.schema]), safe=False)
    try:
        rows = batch.to_pylist()
    except pa.ArrowException:
        raise
    except (ValueError, OverflowError):
        for place in range(batch.num_rows):
            yield _row_at(place, batch)
    else:
        yield from ((row, None) for row in rows)


def _row_at(place: int, batch: Any) -> Row:
    fields, fault = {}, None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            fields[name] = column[place].as_py()
        except pa.ArrowException:
            raise
        except UnicodeDecodeError:
            fault = f"column {name!r} holds what is not UTF-8"
        except (ValueError, OverflowError):
            fault = f"column {name!r} holds a time that is out of range"
    return fields, fault


def _without_nanoseconds(kind: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([_retyped(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_retyped(kind.value_field))
    return pa.large_list(_retyped(kind.value_field)) if pa.types.is_large_list(kind) else kind


def _retyped(field: Any) -> Any:
    return field.with_type(_without_nanoseconds(field.type))


# Rows converted to Python objects together. 64 of the largest dialogues are 0.5 GB, of common ones 0.1 MB.
_ROWS_AT_ONCE = 64
_READ_ERRORS = (OSError, pa.ArrowException)


class ParquetRecords:
    """The rows of one file."""

    def __init__(self, file: InputFile, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        source = file.open_for_seeking()
        try:
            self._parquet = parquet.ParquetFile(source, buffer_size=1024 * 1024, pre_buffer=False)
        except _READ_ERRORS as error:
            raise BadInputError(f"{file.place} is not a complete Parquet file: {error}") from None
        groups = [self._parquet.metadata.row_group(each) for each in range(self._parquet.metadata.num_row_groups)]
        self._groups = [int(each.num_rows) for each in groups]
        self._begins = list(accumulate(self._groups, initial=0))[:-1]
        self._sizes = [int(each.total_byte_size) for each in groups]
        self._needed = columns.needed(file.place, list(self._parquet.schema_arrow.names))

    def marks(self) -> Iterator[Mark]:
        """One for each row, by the file's own table of contents; names of dialogues are read."""
        names: Iterator[object] = repeat(None)
        if self._columns.row == "turn":
            names = (fields.get(self._columns.id_column) for fields, _ in self._rows(0, [self._columns.id_column]))
        for rows, size in zip(self._groups, self._sizes, strict=True):
            for name in islice(names, rows):
                yield Mark(size // rows, None, text_of(name) or None)

    def records(self, start: int, offset: int | None) -> Iterator[RawRecord]:
        """The rows from there on; `start` must be the first of a group."""
        for row, (fields, fault) in enumerate(self._rows(start, self._needed), start=start + 1):
            yield RawRecord(row=row, fields=fields, fault=fault)

    def restarts_at(self, row: int) -> int:
        """The first row of the group that the row is in."""
        return max((each for each in self._begins if each <= row), default=0)

    def _rows(self, start: int, columns: list[str]) -> Iterator[Row]:
        groups = [place for place, begin in enumerate(self._begins) if begin >= start]
        try:
            for batch in self._parquet.iter_batches(
                batch_size=_ROWS_AT_ONCE, row_groups=groups, columns=columns, use_threads=False
            ):
                yield from rows_of(batch)
        except _READ_ERRORS as error:
            raise BadInputError(f"{self._file.place} cannot be read to its end: {error}") from None


_LineRow = tuple[dict[str, Any] | None, str | None, int]  # a row's fields, or why there are none, and its end


class _LineFile:
    """A file that is read line by line, plain or packed."""

    begin = 0  # the position of the first row

    def __init__(self, file: InputFile, columns: Columns) -> None:
        self._file = file
        self._columns = columns

    def marks(self) -> Iterator[Mark]:
        """One for each row, with the dialogue's name where a row is a turn."""
        before = self.begin
        for fields, _, end in self._rows(before, is_read=self._columns.row == "turn"):
            name = text_of((fields or {}).get(self._columns.id_column)) or None
            yield Mark(end - before, None if self._file.packing else end, name)
            before = end

    def records(self, start: int, offset: int | None) -> Iterator[RawRecord]:
        """The rows from there on. An empty line is a record without fields or fault."""
        for row, (fields, fault, _) in enumerate(self._rows(offset or self.begin, is_read=True), start=start + 1):
            yield RawRecord(row=row, fields=fields, fault=fault)

    def restarts_at(self, row: int) -> int:
        """Always the first row: only a mark knows where a row lies."""
        return 0

    @abstractmethod
    def _rows(self, offset: int, *, is_read: bool) -> Iterator[_LineRow]:
        """The rows from that position on."""

    def _lines(self, offset: int) -> Iterator[tuple[bytes | None, int]]:
        """The lines from that position on, each with its end. In a packed file the lines before it are read too."""
        packed = bool(self._file.packing)
        try:
            with self._file.open() if packed else self._file.open_for_seeking() as stream:
                if offset and not packed:
                    stream.seek(offset)
                for raw, end in read_lines(stream, 0 if packed else offset):
                    if not packed or end > offset:
                        yield raw, end
        except OSError as error:
            raise BadInputError(f"{self._file.place} cannot be read to its end: {error}") from None


class JsonLines(_LineFile):
    """The lines of one file."""

    def marks(self) -> Iterator[Mark]:
        """Raises BadColumnsError first, where none of the first lines has a column that was named."""
        self._check_columns()
        return super().marks()

    def _rows(self, offset: int, *, is_read: bool) -> Iterator[_LineRow]:
        for raw, end in self._lines(offset):
            if raw is None:
                yield None, f"the line has more than {MOST_BYTES} bytes", end
            elif is_read and raw.strip():
                try:
                    yield read_json_line(raw), None, end
                except ValueError as error:
                    yield None, str(error), end
            else:
                yield None, None, end

    def _check_columns(self) -> None:
        # These lines say which fields there are. A field that stands in fewer than one in a hundred is looked for in
        # vain, and can be left unnamed.
        first = (fields for fields, *_ in islice(self._rows(0, is_read=True), 100) if fields is not None)
        known = list(dict.fromkeys(chain.from_iterable(first)))
        if known:
            self._columns.needed(self._file.place, known)


csv.field_size_limit(min(sys.maxsize, MOST_BYTES))  # the default of 128 kB is less than a dialogue takes


class CsvRecords(_LineFile):
    """The records of one file, plain or packed."""

    def __init__(self, file: InputFile, columns: Columns) -> None:
        super().__init__(file, columns)
        self._separator = find_separator(next(self._lines(0), (b"", 0))[0] or b"")
        self._header, self.begin = self._read_header()
        columns.needed(file.place, self._header)

    def _rows(self, offset: int, *, is_read: bool) -> Iterator[_LineRow]:
        for cells, end in self._cells(offset):
            fields, fault = None, None
            if len(cells) not in (0, len(self._header)):
                fault = f"the record has {len(cells)} cells, the header {len(self._header)}"
            if is_read and cells and (fault is None or self._columns.row == "turn"):  # for the name of its dialogue
                fields = dict(zip(self._header, cells, strict=False))
            yield fields, fault, end

    def _read_header(self) -> tuple[list[str], int]:
        for cells, end in self._cells(0):
            if len(set(cells)) < len(cells):
                raise BadInputError(f"{self._file.place}: two columns of its first line have one name")
            return cells, end
        raise BadInputError(f"{self._file.place} is empty: its first line must name the columns")

    def _cells(self, offset: int) -> Iterator[tuple[list[str], int]]:
        """The records with the position behind each."""
        place = offset

        def lines() -> Iterator[str]:
            nonlocal place
            for raw, end in self._lines(offset):
                if raw is None:
                    raise BadInputError(f"{self._file.place}: a line has more than {MOST_BYTES} bytes")
                if place == 0:
                    raw = raw.removeprefix(codecs.BOM_UTF8)  # a quote behind it would not begin a cell
                place = end
                # What is not UTF-8 becomes lone surrogates, which no turn may hold: the turn is set aside, by its name.
                yield raw.decode("utf-8", "surrogateescape")

        try:
            for cells in csv.reader(lines(), delimiter=self._separator, strict=True):
                yield cells, place
        except csv.Error as error:
            raise BadInputError(f"{self._file.place}: behind byte {place}: {error}") from None


RecordFile = ParquetRecords | JsonLines | CsvRecords
_KINDS: dict[str, Callable[[InputFile, Columns], RecordFile]] = {
    "parquet": ParquetRecords,
    "jsonl": JsonLines,
    "csv": CsvRecords,
}


def open_records(file: InputFile, columns: Columns) -> RecordFile:
    """The file's records. Raises BadInputError; BadColumnsError where the file lists its columns and one is missing."""
    return _KINDS[file.format](file, columns)


@dataclass
class _Reading:
    """How far one file was read."""

    key: tuple[InputFile, Columns]
    row: int
    records: Iterator[RawRecord]
    file: RecordFile


class RecordReader(threading.local):
    """Reads ranges of rows, and keeps each thread's file open: ranges in order cost one pass over a packed file."""

    def __init__(self) -> None:
        self._reading: _Reading | None = None

    def read(self, file: InputFile, columns: Columns, start: int, rows: int, offset: int | None) -> Iterator[RawRecord]:
        """That many records from `start` on. Raises BadInputError where the file has fewer."""
        reading = self._open(file, columns, start, offset)
        self._reading = None  # a caller that stops early leaves no half-read file
        while reading.row < start + rows:
            record = next(reading.records, None)
            if record is None:
                raise BadInputError(f"{file.place} ends at row {reading.row}; it was longer when the run began")
            reading.row += 1
            if reading.row > start:
                yield record
        self._reading = reading

    def _open(self, file: InputFile, columns: Columns, start: int, offset: int | None) -> _Reading:
        known = self._reading
        is_open = known is not None and known.key == (file, columns)
        opened = known.file if known is not None and is_open else open_records(file, columns)
        begin = start if offset is not None else opened.restarts_at(start)
        if known is not None and is_open and begin <= known.row <= start:
            return known
        return _Reading((file, columns), begin, opened.records(begin, offset), opened)
