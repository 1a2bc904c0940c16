"""The sets by name: their files, their reader, and the counts of a correct reading of the whole set."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from turnscore_assessment.converters import readers
from turnscore_assessment.converters.readers import Record
from turnscore_assessment.errors import BadFileError

Read = Callable[[Sequence[Path]], Iterator[Record]]


@dataclass(frozen=True, kw_only=True)
class OriginalSet:
    """A set as its authors publish it."""

    read: Read
    files: Sequence[str]
    """Patterns of the files in a folder, in the order in which they are read."""
    rows: int | None = None
    """Rows of the whole set; None where we hold none to count."""
    turns: int | None = None
    becomes: str = ""
    """The file name that our commands look for."""
    note: str = ""


def _read_sets() -> Iterator[tuple[str, OriginalSet]]:
    described = json.loads(resources.files(__package__).joinpath("original_sets.json").read_text(encoding="utf-8"))
    for name, fields in described.items():
        yield name, OriginalSet(**{**fields, "read": getattr(readers, fields["read"])})


SETS: Mapping[str, OriginalSet] = dict(_read_sets())


def find_files(described: OriginalSet, source: Path) -> list[Path]:
    """The file itself, or the set's files anywhere in the folder, by pattern and then by name.

    BadFileError where the folder has none.
    """
    if source.is_file():
        return [source]
    found = [path for pattern in described.files for path in sorted(source.rglob(pattern)) if path.is_file()]
    if not found:
        raise BadFileError(source, 0, f"has no file like {' or '.join(described.files)}")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class RowCounts:
    """Rows and turns of a converted file; a row of responses has no turns."""

    rows: int
    turns: int


def count_rows(rows: Iterable[Record]) -> RowCounts:
    found = [len(row.get("turns", ())) for row in rows]
    return RowCounts(len(found), sum(found))


def compare_counts(described: OriginalSet, found: RowCounts) -> str:
    """A sentence on whether these are the counts of the whole set."""
    wanted = [
        (name, want, have)
        for name, want, have in (("rows", described.rows, found.rows), ("turns", described.turns, found.turns))
        if want is not None
    ]
    if not wanted:
        return described.note
    missed = [f"{want:,} {name}" for name, want, have in wanted if want != have]
    if missed:
        return f"the whole set has {' and '.join(missed)}: this is a part of it, or another version"
    return "these are the counts of the whole set"
