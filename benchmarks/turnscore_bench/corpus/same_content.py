"""Two output folders of `turnscore corpus score`, compared row by row. Scores nothing."""

from pathlib import Path

from pyarrow import parquet
from turnscore_corpus.outputs.tables import TABLES


class DifferentContentError(Exception):
    """The folders do not hold the same rows; the message names the first file that differs."""


def count_same_rows(folder: Path, other: Path) -> dict[str, int]:
    """How many rows each table has, in the same order with the same cells in both. Raises DifferentContentError."""
    counts = dict.fromkeys(TABLES, 0)
    for table in TABLES:
        names, others = ({each.name for each in (place / table).glob("[!.]*")} for place in (folder, other))
        if names != others:
            raise DifferentContentError(f"{table}/{min(names ^ others)} is in one folder alone")
        for name in sorted(names):
            rows = parquet.read_table(folder / table / name)
            if not rows.equals(parquet.read_table(other / table / name)):
                raise DifferentContentError(f"{table}/{name} differs")
            counts[table] += rows.num_rows
    return counts
