"""Tables in Markdown, for every report."""

from collections.abc import Iterable, Sequence


def table_head(columns: Sequence[object]) -> list[str]:
    """The two lines above a table's rows."""
    return [table_row(columns), table_row(["---"] * len(columns))]


def table_row(cells: Iterable[object]) -> str:
    """A row; a `|` in a cell ends no cell, and the end of a line no row, as names of systems may hold both."""
    return f"| {' | '.join(' '.join(str(cell).splitlines()).replace('|', chr(92) + '|') for cell in cells)} |"
