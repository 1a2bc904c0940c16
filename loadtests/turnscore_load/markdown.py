"""Tables in Markdown, for every report of a run. Pure."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int | None = None) -> str:
    """Columns after the first `texts` are numbers, aligned right; without it, all are words."""
    words = len(head) if texts is None else texts
    lines = [head, [*["---"] * words, *["---:"] * (len(head) - words)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
