"""The page: tables as Markdown between two markers, so that the prose around them stays. Measures nothing."""

from pathlib import Path


class MissingMarkersError(Exception):
    """The page has no place for the tables."""


def markers(command: str) -> tuple[str, str]:
    """The lines between which that command writes."""
    return f"<!-- {command} writes below this line -->", f"<!-- {command} writes above this line -->"


BEGIN, END = markers("make bench")


def write_between_markers(page: Path, text: str, between: tuple[str, str] = (BEGIN, END)) -> None:
    """Replaces what stands between the markers. Raises MissingMarkersError where they are not there, in this order."""
    first, last = between
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise MissingMarkersError(f"{page} has no line {first!r} with {last!r} after it")
    page.write_text(f"{before}{first}\n\n{text}\n\n{last}{after}", encoding="utf-8")


def number(value: float | None, digits: int) -> str:
    """`1,234.5`, or `-`."""
    return "-" if value is None else f"{value:,.{digits}f}"


def table(head: list[str], rows: list[list[str]], *, texts: int) -> str:
    """The first `texts` columns are words, the others numbers."""
    lines = [head, [*["---"] * texts, *["---:"] * (len(head) - texts)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
