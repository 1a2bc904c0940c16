"""The one renderer of reports: sentences, tables and charts as HTML, Markdown, terminal tables, JSON and CSV.

Charts are inline SVG, which needs no script and no network, and prints. Every text is escaped; every chart has a title
that a screen reader says.
"""

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import rich.table
from jinja2 import Environment
from markupsafe import Markup, escape
from rich.console import Console

from turnscore_assessment.figures import Interval, jsonable, plain
from turnscore_assessment.files import to_csv, to_json_text, write_text

NOTHING = "-"


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
    # Columns where the output is not a terminal. Chosen: the widest table fits.
    console = Console() if Console().is_terminal else Console(width=240)
    for section in page.sections:
        for table in section.tables:
            printed = rich.table.Table(*table.header, title=table.caption or None, title_justify="left")
            printed.box = printed.box if console.is_terminal else None
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
    # A row per result, a column per number in it: `scores fun`, `scores fun low`, `scores fun high`.
    for each, results in (csv or {}).items():
        rows = [flatten(result) for result in results]
        names = list(dict.fromkeys(name for row in rows for name in row))
        contents[f"{each}.csv"] = to_csv(names, ([row.get(name, "") for name in names] for row in rows))
    for each, content in contents.items():
        write_text(folder / each, content)
    return [folder / each for each in contents]


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


# The first four differ with common colour deficiencies, and in grey by their darkness.
COLOURS = ("#0b5cad", "#b3471d", "#2f7d32", "#6f42a5", "#566573", "#d68910", "#16a085", "#7b241c")
WIDTH_INCHES, ROW_INCHES = 7.5, 0.28
_STYLE = {
    "svg.fonttype": "none",  # texts stay texts, in the page's font
    "svg.hashsalt": "turnscore",
    "text.parse_math": False,  # a system's name may hold dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d1d9e0",
}


def draw_intervals(title: str, rows: Sequence[tuple[str, Interval]]) -> Markup:
    """A row each: a point with its interval."""

    def plot(axes: Any) -> None:
        axes.hlines(range(len(rows)), [each.low for _, each in rows], [each.high for _, each in rows])
        axes.plot([each.value for _, each in rows], range(len(rows)), "o")
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.axvline(0, color=COLOURS[4], linewidth=0.8)

    return _draw(title, 0.6 + ROW_INCHES * len(rows), plot)


def draw_matrix(title: str, names: Sequence[str], cells: Mapping[tuple[str, str], tuple[str, float]]) -> Markup:
    """A square table: each cell's text, and its darkness from 0 to 1."""

    def plot(axes: Any) -> None:
        table = [[cells.get((row, column), ("", 0.0)) for column in names] for row in names]
        shades = np.array([[darkness for _, darkness in row] for row in table])
        axes.pcolormesh(shades, cmap="Blues", vmin=0, vmax=1, edgecolors="#d1d9e0")
        for y, row in enumerate(table):
            for x, (label, darkness) in enumerate(row):
                # White from half of the darkness on: on lighter cells its contrast is too low.
                axes.text(x + 0.5, y + 0.5, label, ha="center", va="center", color="w" if darkness > 0.6 else "k")
        places = np.arange(len(names)) + 0.5
        axes.set_xticks(places, names, rotation=45, ha="left", rotation_mode="anchor")
        axes.set_yticks(places, names)
        axes.set(aspect="equal")
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        axes.invert_yaxis()

    return _draw(title, 1.2 + 0.55 * len(names), plot)


def draw_histogram(title: str, edges: Sequence[float], series: Mapping[str, Sequence[float]]) -> Markup:
    """Bars side by side for each series: shares of its own total, in percent."""

    def plot(axes: Any) -> None:
        width = 0.9 * (edges[1] - edges[0]) / max(len(series), 1)
        for number, (name, values) in enumerate(series.items()):
            shares = 100 * np.array(values) / max(sum(values), 1)
            axes.bar(np.array(edges[:-1]) + number * width, shares, width, label=name, align="edge")
        axes.yaxis.set_major_formatter("{x:g} %")
        axes.legend()

    return _draw(title, 2.9, plot)


def draw_lines(title: str, across_name: str, series: Mapping[str, Sequence[tuple[float, Interval]]]) -> Markup:
    """A line each through its points, with the intervals as bars."""

    def plot(axes: Any) -> None:
        for name, points in series.items():
            places = [place for place, _ in points]
            [line] = axes.plot(places, [each.value for _, each in points], "o-", label=name)
            axes.vlines(places, [each.low for _, each in points], [each.high for _, each in points], line.get_color())
        axes.set_xlabel(across_name)
        axes.set_xlim(left=0)
        if series:
            axes.legend()

    return _draw(title, 3.2, plot)


def _draw(title: str, height: float, plot: Callable[[Any], None]) -> Markup:
    """The chart as SVG within a page: without scripts, requests and what matplotlib says of itself."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    text = io.StringIO()
    with rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        plot(figure.subplots())
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    start, end, drawing = text.getvalue().partition("<svg ")[2].partition(">")
    # matplotlib escapes the texts of the drawing.
    return Markup(f'<svg role="img" {start}{end}<title>{escape(title)}</title>{drawing}')  # noqa: S704
