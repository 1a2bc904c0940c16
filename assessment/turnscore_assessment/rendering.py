"""Tables in Markdown and pages in HTML, for every report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup


def table_head(columns: Sequence[object]) -> list[str]:
    """The two lines above a table's rows."""
    return [table_row(columns), table_row(["---"] * len(columns))]


def table_row(cells: Iterable[object]) -> str:
    """A row; a `|` in a cell ends no cell, and the end of a line no row, as names of systems may hold both."""
    return f"| {' | '.join(' '.join(str(cell).splitlines()).replace('|', chr(92) + '|') for cell in cells)} |"


@dataclass(frozen=True)
class Table:
    """A table to read; the first cell of a row is its heading."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page under a heading of its own."""

    heading: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """The page's content; every text is escaped."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    command: str
    date: str


def write_page(page: Page) -> str:
    """The page's HTML: one file without scripts and without requests to the network."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        title=page.title, summary=page.summary, sections=page.sections, command=page.command, date=page.date
    )
