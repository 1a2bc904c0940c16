"""CSV: the first record names the columns, every other record is a row. Quoted cells may hold line ends."""

import codecs
import csv
import sys
from collections.abc import Iterator
from typing import Any

from turnscore_corpus.errors import BadInputError
from turnscore_corpus.inputs.byte_lines import MOST_BYTES, read_lines
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.input_files import InputFile
from turnscore_corpus.inputs.raw_record import Mark, RawRecord

csv.field_size_limit(min(sys.maxsize, MOST_BYTES))  # the default of 128 kB is less than a dialogue takes


class CsvRecords:
    """The records of one file, plain or packed."""

    def __init__(self, file: InputFile, columns: Columns) -> None:
        self._file = file
        self._columns = columns
        self._header, self._body = self._read_header()
        columns.needed(file.place, self._header)

    def marks(self) -> Iterator[Mark]:
        """One mark for each record, with the dialogue's name where a row is a turn."""
        name_at = self._header.index(self._columns.id_column) if self._columns.row == "turn" else None
        before = self._body
        for cells, end in self._cells(self._body):
            name = cells[name_at] or None if name_at is not None and name_at < len(cells) else None
            yield Mark(end - before, None if self._file.packing else end, name)
            before = end

    def records(self, start: int, offset: int | None) -> Iterator[RawRecord]:
        """The records from `start` on. A record with another width than the header's is a fault."""
        for row, (cells, _) in enumerate(self._cells(offset or self._body), start=start + 1):
            if not cells:
                yield RawRecord(row=row, fields=None)
            elif len(cells) != len(self._header):
                fault = f"the record has {len(cells)} cells, the header {len(self._header)}"
                fields = dict(zip(self._header, cells, strict=False)) if self._columns.row == "turn" else None
                yield RawRecord(row=row, fields=fields, fault=fault)
            else:
                yield RawRecord(row=row, fields=dict(zip(self._header, cells, strict=True)))

    def restarts_at(self, row: int) -> int:
        """Always the first row: only a mark knows where a record lies."""
        return 0

    def _read_header(self) -> tuple[list[str], int]:
        for cells, end in self._cells(0):
            if len(set(cells)) < len(cells):
                raise BadInputError(f"{self._file.place}: two columns of its first line have one name")
            return cells, end
        raise BadInputError(f"{self._file.place} is empty: its first line must name the columns")

    def _cells(self, offset: int) -> Iterator[tuple[list[str], int]]:
        """The records with the position behind each."""
        place = offset

        def lines(stream: Any) -> Iterator[str]:
            nonlocal place
            for raw, end in read_lines(stream, 0 if self._file.packing else offset):
                if self._file.packing and end <= offset:
                    continue
                if raw is None:
                    raise BadInputError(f"{self._file.place}: a line has more than {MOST_BYTES} bytes")
                if place == 0:
                    raw = raw.removeprefix(codecs.BOM_UTF8)  # a quote behind it would not begin a cell
                place = end
                # What is not UTF-8 becomes lone surrogates, which no turn may hold: the turn is set aside, by its name.
                yield raw.decode("utf-8", "surrogateescape")

        try:
            with self._file.open() if self._file.packing else self._file.open_for_seeking() as stream:
                if offset and not self._file.packing:
                    stream.seek(offset)
                reader = csv.reader(lines(stream), strict=True)
                for cells in reader:
                    yield cells, place
        except OSError as error:
            raise BadInputError(f"{self._file.place} cannot be read to its end: {error}") from None
        except csv.Error as error:
            raise BadInputError(f"{self._file.place}: behind byte {place}: {error}") from None
