"""Charts as inline SVG, which needs no script and no network and prints: intervals, a matrix, a histogram, lines.

Every text is escaped; every chart has a title that a screen reader says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from turnscore_assessment.figures import Interval

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
