"""The one renderer of reports: sentences, tables and charts as HTML, Markdown, terminal tables, JSON and CSV."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import rich.table
from jinja2 import Environment
from markupsafe import Markup
from rich.console import Console

from turnscore_assessment.figures import Interval, jsonable, plain
from turnscore_assessment.files import to_csv, to_json_text, write_text

NOTHING = "-"
PLAIN_WIDTH = 240
"""Columns where the output is not a terminal. Chosen: the widest table fits."""


@dataclass(frozen=True)
class Table:
    """A table to read; the first cell of a row is its heading, and `show` writes the others."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own."""

    heading: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Markup] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report's content, and the command that gives it again; every text is escaped."""

    title: str
    summary: Sequence[str] = ()
    sections: Sequence[Section] = ()
    command: str = ""
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")


def show(cell: object, digits: int = 3) -> str:
    """A cell's text: a dash for what is unknown, numbers with so many digits, an interval after its figure."""
    if isinstance(cell, Interval):
        return str(cell) if digits == 3 or math.isnan(cell.value) else f"{cell.value:.{digits}f}"
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return NOTHING
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def show_p(p: float | None) -> str:
    """A p-value with three digits."""
    if p is None or math.isnan(p):
        return NOTHING
    return "<.001" if p < 0.001 else f"{p:.3f}"


def table_head(columns: Sequence[object]) -> list[str]:
    """The two lines above a table's rows."""
    return [table_row(columns), table_row(["---"] * len(columns))]


def table_row(cells: Iterable[object]) -> str:
    """A row; a `|` in a cell ends no cell, and the end of a line no row, as names of systems may hold both."""
    return f"| {' | '.join(' '.join(show(cell).splitlines()).replace('|', chr(92) + '|') for cell in cells)} |"


def to_markdown(page: Page) -> str:
    """The page without its charts."""
    lines = [f"# {page.title}", *(line for sentence in page.summary for line in ("", sentence))]
    for section in page.sections:
        lines += ["", f"## {section.heading}", *(line for each in section.paragraphs for line in ("", each))]
        for table in section.tables:
            lines += ["", f"**{table.caption}**", "", *table_head(table.header), *map(table_row, table.rows)]
    return "\n".join([*lines, "", f"Made by `{page.command}` on {page.date}.", ""])


def to_html(page: Page) -> str:
    """The page as one file without scripts and without requests to the network."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["show"] = show
    return environment.from_string(template).render(page=page)


def print_page(page: Page, result: object = None, output: Path | None = None) -> None:
    """Prints each section's tables and sentences, and the summary last; writes the result as JSON where asked."""
    console = Console() if Console().is_terminal else Console(width=PLAIN_WIDTH)
    for section in page.sections:
        for table in section.tables:
            printed = rich.table.Table(*table.header, title=table.caption or None, title_justify="left")
            for row in table.rows:
                printed.add_row(*map(show, row))
            console.print(printed, markup=False, highlight=False)
        for sentence in section.paragraphs:
            console.print(sentence, soft_wrap=True, markup=False, highlight=False)
    written = []
    if output is not None:
        write_text(output, to_json_text(result))
        written = [f"wrote {output}"]
    for sentence in (*page.summary, *written):
        console.print(sentence, soft_wrap=True, markup=False, highlight=False)


def write_report(
    folder: Path, name: str, page: Page, result: object, csv: Mapping[str, Sequence[object]] | None = None
) -> list[Path]:
    """Writes `name`.html, .md and .json, and a CSV of results by its name, replacing old ones; returns their paths.

    The JSON holds the whole result with its command and date; non-finite numbers are null.
    """
    contents = {
        f"{name}.html": to_html(page),
        f"{name}.md": to_markdown(page),
        f"{name}.json": to_json_text({"command": page.command, "date": page.date, **jsonable(result)}),
    }
    contents |= {f"{each}.csv": rows_to_csv(rows) for each, rows in (csv or {}).items()}
    for each, content in contents.items():
        write_text(folder / each, content)
    return [folder / each for each in contents]


def rows_to_csv(results: Sequence[object]) -> str:
    """A row per result, a column per number in it: `scores fun`, `scores fun low`, `scores fun high`."""
    rows = [flatten(result) for result in results]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return to_csv(names, ([row.get(name, "") for name in names] for row in rows))


def flatten(result: Any, name: str = "") -> dict[str, object]:
    """The numbers and texts of a nested result by the names that lead to them."""
    if isinstance(result, Interval):
        found = result.to_json()
        return {name: found["value"], f"{name} low": found["low"], f"{name} high": found["high"]}
    if is_dataclass(result):
        result = {each.name: getattr(result, each.name) for each in fields(result)}
    if not isinstance(result, Mapping):
        return {name: plain(result) if isinstance(result, float) else result}
    parts = (flatten(value, f"{name} {inner}".strip()) for inner, value in result.items())
    return {key: cell for part in parts for key, cell in part.items()}
