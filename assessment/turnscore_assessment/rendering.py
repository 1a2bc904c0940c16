"""The one renderer of reports: sentences, tables and charts as HTML, Markdown, terminal tables, JSON and CSV.

Charts are inline SVG, which needs no script and no network, and prints. Every text is escaped; every chart has a title
that a screen reader says.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import rich.table
from jinja2 import Environment
from markupsafe import Markup, escape
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


INK, FAINT, GRID = "#1b1f24", "#59636e", "#d1d9e0"
COLOURS = ("#0b5cad", "#b3471d", "#2f7d32", "#6f42a5", "#566573", "#d68910", "#16a085", "#7b241c")
"""The first four differ with common colour deficiencies, and in grey by their darkness. Chosen."""
FONT = 13
WIDTH = 720.0
MARGIN = 10.0
ROW = 26.0
TICKS = 6
LEGENDS = 3
"""Names of series in a row."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Maps values to places on the page."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Some round numbers within."""
        step = _round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def draw_intervals(title: str, rows: Sequence[tuple[str, Interval]]) -> Markup:
    """A row each: a point with its interval."""
    ends = [end for _, each in rows for end in (each.value, each.low, each.high) if math.isfinite(end)]
    axis = _fit_axis([*ends, 0.0], 150, WIDTH - 20)
    bottom = MARGIN + len(rows) * ROW
    parts = [_line(axis.place(tick), MARGIN, axis.place(tick), bottom, GRID) for tick in axis.ticks()]
    parts += [_text(axis.place(tick), bottom + 18, _number(tick), "middle", FAINT) for tick in axis.ticks()]
    for number, (name, each) in enumerate(rows):
        y = MARGIN + (number + 0.5) * ROW
        parts.append(_text(140, y + 4, name, "end"))
        if math.isfinite(each.low):
            parts.append(_line(axis.place(each.low), y, axis.place(each.high), y, COLOURS[0], 3))
        if math.isfinite(each.value):
            parts.append(_circle(axis.place(each.value), y, COLOURS[0]))
    return _frame(title, bottom + 28, parts)


def draw_matrix(title: str, names: Sequence[str], cells: Mapping[tuple[str, str], tuple[str, float, str]]) -> Markup:
    """A square table: each cell's text, darkness from 0 to 1, and meaning."""
    left, size = 130.0, min(56.0, (WIDTH - 150) / max(len(names), 1))
    parts = []
    for row, name in enumerate(names):
        y = 30 + row * size
        parts.append(_text(left - 8, y + size / 2 + 4, name, "end"))
        parts.append(_text(left + (row + 0.5) * size, 22, name, "middle"))
        for column, other in enumerate(names):
            label, darkness, meaning = cells.get((name, other), ("", 0.0, ""))
            parts.append(_cell(left + column * size, y, size, label, darkness, meaning))
    return _frame(title, 40 + len(names) * size, parts)


def draw_histogram(title: str, edges: Sequence[float], series: Mapping[str, Sequence[float]]) -> Markup:
    """Bars side by side for each series: shares of its own total, in percent."""
    shares = {name: [100 * value / max(sum(values), 1) for value in values] for name, values in series.items()}
    highest = max((share for values in shares.values() for share in values), default=0.0)
    across = Axis(low=edges[0], high=edges[-1], start=50, end=WIDTH - 20)
    up = Axis(low=0, high=max(highest, 1) * 1.05, start=240, end=30)
    parts = [_line(50, up.place(tick), WIDTH - 20, up.place(tick), GRID) for tick in up.ticks()]
    parts += [_text(44, up.place(tick) + 4, f"{_number(tick)} %", "end", FAINT) for tick in up.ticks()]
    parts += [_text(across.place(tick), 258, _number(tick), "middle", FAINT) for tick in across.ticks()]
    slot = (across.place(edges[1]) - across.place(edges[0])) * 0.9 / max(len(shares), 1)
    for number, (name, values) in enumerate(shares.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(_legend(number, name, colour))
        for place, share in enumerate(values):
            x = across.place(edges[place]) + number * slot
            parts.append(_box(x, up.place(share), slot, up.place(0) - up.place(share), colour))
    return _frame(title, 270, parts)


def draw_lines(title: str, across_name: str, series: Mapping[str, Sequence[tuple[float, Interval]]]) -> Markup:
    """A line each through its points, with the intervals as bars."""
    points = [point for line in series.values() for point in line]
    ends = [end for _, each in points for end in (each.value, each.low, each.high) if math.isfinite(end)]
    across = _fit_axis([x for x, _ in points] + [0.0], 60, WIDTH - 30)
    fitted = _fit_axis(ends or [0.0, 1.0], 240, 40 + max(0, len(series) - 1) // LEGENDS * 16)
    parts = [_line(60, fitted.place(tick), WIDTH - 30, fitted.place(tick), GRID) for tick in fitted.ticks()]
    parts += [_text(54, fitted.place(tick) + 4, _number(tick), "end", FAINT) for tick in fitted.ticks()]
    parts += [_text(across.place(tick), 258, _number(tick), "middle", FAINT) for tick in across.ticks()]
    parts.append(_text((60 + WIDTH - 30) / 2, 278, across_name, "middle", FAINT))
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(_legend(number, name, colour))
        places = [(across.place(x), fitted.place(each.value)) for x, each in line if math.isfinite(each.value)]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, each in line:
            if math.isfinite(each.low):
                parts.append(
                    _line(across.place(x), fitted.place(each.low), across.place(x), fitted.place(each.high), colour)
                )
        parts += [_circle(x, y, colour) for x, y in places]
    return _frame(title, 288, parts)


def _fit_axis(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or 0.5
    return Axis(low=low - room, high=high + room, start=start, end=end)


def _round_step(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) > 1e-9 else "0"


def _frame(title: str, height: float, parts: Sequence[str]) -> Markup:
    start = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" font-size="{FONT}" xmlns="http://www.w3.org/2000/svg">'
    # Every part is made here, of numbers and escaped texts.
    return Markup(f"{start}<title>{escape(title)}</title>{''.join(parts)}</svg>")  # noqa: S704


def _text(x: float, y: float, text: str, anchor: str, colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _circle(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _legend(number: int, name: str, colour: str) -> str:
    x, y = 60 + number % LEGENDS * 220, 8 + number // LEGENDS * 16
    return _box(x, y, 12, 12, colour) + _text(x + 18, y + 10, name, "start")


def _cell(x: float, y: float, size: float, label: str, darkness: float, meaning: str) -> str:
    """Text is white from half of the darkness on: on lighter cells the contrast is too low."""
    fill = f'fill="{COLOURS[0]}" fill-opacity="{darkness:.2f}" stroke="{GRID}"'
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="{size:.1f}" {fill}/>'
    colour = "#ffffff" if darkness > 0.6 else INK
    inner = _text(x + size / 2, y + size / 2 + 4, label, "middle", colour) if label else ""
    return f"<g><title>{escape(meaning)}</title>{box}{inner}</g>" if meaning else box + inner
