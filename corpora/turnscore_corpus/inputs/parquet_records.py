"""Parquet: every row is a row. Reading begins at a row group, and reads only the columns that are needed."""

from collections.abc import Iterator
from itertools import accumulate

import pyarrow as pa
from pyarrow import parquet

from turnscore_corpus.errors import BadInputError
from turnscore_corpus.inputs.arrow_rows import Row, rows_of
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.input_files import InputFile
from turnscore_corpus.inputs.raw_record import Mark, RawRecord

_ROWS_AT_ONCE = 64
"""Rows converted to Python objects together. Chosen: 64 of the largest dialogues are 0.5 GB, of common ones 0.1 MB."""
_BUFFER_BYTES = 1024 * 1024
_READ_ERRORS = (OSError, pa.ArrowException)


class ParquetRecords:
    """The rows of one file."""

    def __init__(self, file: InputFile, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        source = file.open_for_seeking()
        try:
            self._parquet = parquet.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except _READ_ERRORS as error:
            raise BadInputError(f"{file.place} is no whole Parquet file: {error}") from None
        groups = [self._parquet.metadata.row_group(each) for each in range(self._parquet.metadata.num_row_groups)]
        self._groups = [int(each.num_rows) for each in groups]
        self._begins = list(accumulate(self._groups, initial=0))[:-1]
        self._sizes = [int(each.total_byte_size) for each in groups]
        self._needed = columns.needed(file.place, list(self._parquet.schema_arrow.names))

    def marks(self) -> Iterator[Mark]:
        """One for each row, by the file's own table of contents; names of dialogues are read."""
        names = self._rows(0, [self._columns.id_column]) if self._columns.row == "turn" else None
        flat = (fields.get(self._columns.id_column) for fields, _ in names) if names is not None else None
        for rows, size in zip(self._groups, self._sizes, strict=True):
            for _ in range(rows):
                name = next(flat) if flat is not None else None
                yield Mark(size // rows, None, None if name is None else str(name) or None)

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
