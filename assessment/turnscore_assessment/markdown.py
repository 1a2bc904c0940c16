"""Tables in Markdown, for every report."""

from collections.abc import Iterable, Sequence


def table_head(columns: Sequence[object]) -> list[str]:
    """The two lines above a table's rows."""
    return [table_row(columns), table_row(["---"] * len(columns))]


def table_row(cells: Iterable[object]) -> str:
    """A row; a `|` in a cell ends no cell."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"
