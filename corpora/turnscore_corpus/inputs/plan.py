"""The plan: input files cut into blocks, by a rule that depends only on the files and the block size.

A block is what is committed together: a range of one file's rows. Where a row is a turn, a dialogue is never cut, and
one whose turns do not lie together is refused, as it would be scored as two.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_corpus.inputs.files import BadInputError, Columns, InputFile
from turnscore_corpus.inputs.formats import Mark, open_records

# Dialogues in a block. Some 8,000 turns, a quarter of a minute of engagement on one core, is what a killed worker
# loses; 10^8 turns are 12,500 blocks.
BLOCK_DIALOGUES = 1000
# Most bytes of a block's rows, unpacked; longer dialogues make fewer rows. Four of the largest dialogues.
MOST_BLOCK_BYTES = 32 * 1024 * 1024
MOST_NAMELESS = 1000  # Most rows without a dialogue's name, blank or torn, within one dialogue. They go into its block.


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A range of rows that is scored and committed as one."""

    number: int
    file: InputFile
    columns: Columns
    start: int  # its first row, from 0
    rows: int
    offset: int | None = None  # the position of that row in the file, where reading can begin there

    @property
    def name(self) -> str:
        """The stem of its files' names."""
        return f"part-{self.number:07d}"


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file as it was when the run was planned."""

    file: InputFile
    size_bytes: int
    digest: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    files: Sequence[PlannedFile]
    blocks: Sequence[Block]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def make_plan(files: Sequence[InputFile], columns: Columns, block_dialogues: int = BLOCK_DIALOGUES) -> Plan:
    """Reads every file once. Raises BadInputError or BadColumnsError."""
    planned: list[PlannedFile] = []
    blocks: list[Block] = []
    for file in files:
        size, digest = file.digest()
        rows, offset = 0, None
        marks = open_records(file, columns).marks()
        for count, end in _cut(_checked(file, _begun(marks, columns), columns), block_dialogues):
            blocks.append(Block(number=len(blocks), file=file, columns=columns, start=rows, rows=count, offset=offset))
            rows, offset = rows + count, end
        planned.append(PlannedFile(file=file, size_bytes=size, digest=digest, rows=rows))
    return Plan(files=planned, blocks=blocks)


def _begun(marks: Iterator[Mark], columns: Columns) -> Iterator[tuple[Mark, bool]]:
    """The marks, each with whether a dialogue begins there. A row without a name is within the dialogue before it."""
    last: str | None = None
    nameless = 0
    for mark in marks:
        if columns.row == "dialogue":
            yield mark, True
        elif mark.dialogue is not None:
            yield mark, mark.dialogue != last
            last, nameless = mark.dialogue, 0
        else:
            nameless += 1
            if nameless > MOST_NAMELESS:
                last = None
            yield mark, last is None


def _cut(marks: Iterator[tuple[Mark, bool]], most: int) -> Iterator[tuple[int, int | None]]:
    """The rows of each block, and where it ends."""
    rows = dialogues = size = 0
    end: int | None = None
    for mark, begins in marks:
        if begins and rows and (dialogues >= most or size + mark.size_bytes > MOST_BLOCK_BYTES):
            yield rows, end
            rows = dialogues = size = 0
        rows, size, end = rows + 1, size + mark.size_bytes, mark.end
        dialogues += begins
    if rows:
        yield rows, end


def _checked(file: InputFile, marks: Iterator[tuple[Mark, bool]], columns: Columns) -> Iterator[tuple[Mark, bool]]:
    """Passes the marks on. Raises BadInputError at the end where a dialogue's turns do not stand together."""
    if columns.row == "dialogue":
        yield from marks
        return
    hashes, begins = array("Q"), array("Q")
    for row, (mark, is_begin) in enumerate(marks, start=1):
        if is_begin and mark.dialogue is not None:
            found = hashlib.blake2b(mark.dialogue.encode("utf-8", "surrogatepass"), digest_size=8)
            hashes.append(int.from_bytes(found.digest(), "little"))
            begins.append(row)
        yield mark, is_begin
    seen = np.array(hashes, dtype=np.uint64)
    order = np.argsort(seen, kind="stable")
    again = np.flatnonzero(seen[order][1:] == seen[order][:-1])
    if len(again):
        first, second = (begins[int(order[again[0] + step])] for step in (0, 1))
        raise BadInputError(
            f"{file.place}: the dialogue of row {first} goes on in row {second}, behind another; sort the file by "
            f"{columns.id_column!r}"
        )
