"""Records: the rows of a file in order, one at a time. Says where reading may begin; knows no dialogue."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from turnscore_corpus.errors import BadInputError
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.csv_records import CsvRecords
from turnscore_corpus.inputs.input_files import InputFile
from turnscore_corpus.inputs.json_lines import JsonLines
from turnscore_corpus.inputs.parquet_records import ParquetRecords
from turnscore_corpus.inputs.raw_record import Mark, RawRecord


class RecordFile(Protocol):
    """A file's records."""

    def marks(self) -> Iterator[Mark]:
        """A mark for every row, in order: enough to cut the file into blocks. Raises BadInputError for a torn file."""

    def records(self, start: int, offset: int | None) -> Iterator[RawRecord]:
        """The records from row `start` on, counted from 0; `offset` is that row's position, where a mark has one."""

    def restarts_at(self, row: int) -> int:
        """The row from which reading must begin to reach that row."""


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


class RecordReader:
    """Reads ranges of rows, and keeps the file open: ranges in order cost one pass over a packed file."""

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
        if known is not None and known.key == (file, columns):
            begin = start if offset is not None else known.file.restarts_at(start)
            if begin <= known.row <= start:
                return known
            opened: RecordFile = known.file
        else:
            opened = open_records(file, columns)
        begin = start if offset is not None else opened.restarts_at(start)
        return _Reading((file, columns), begin, opened.records(begin, offset), opened)
