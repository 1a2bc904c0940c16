"""The plot: correlation with the ratings by the number of references, a line per metric, as SVG."""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from turnscore_assessment.references.evaluation import Correlated

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 190, 28, 44
_COLOURS: Final = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#566573", "#16a085", "#7b241c")
_TICKS = 5

_Points = Sequence[tuple[int, float, float, float]]
"""References, correlation, and the ends of its interval."""


def draw_growth(correlations: Sequence[Correlated], reducer: str = "max") -> str:
    """Pearson's r with its interval for each metric; a metric without a number for two counts is left out."""
    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    for each in correlations:
        found = each.agreement.pearson
        if each.reducer == reducer and math.isfinite(found.value):
            low, high = (end if math.isfinite(end) else found.value for end in (found.low, found.high))
            lines.setdefault(each.metric, []).append((each.references, found.value, low, high))
    return _draw({name: points for name, points in lines.items() if len(points) > 1}, reducer)


def _draw(lines: Mapping[str, _Points], reducer: str) -> str:
    frame = _Frame([point for points in lines.values() for point in points])
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _write(_LEFT, 16, f"Pearson's r with the ratings ({reducer} over references)"),
        _write((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, "references", "middle"),
        *frame.draw_axes(),
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        body += frame.draw_line(points, colour, shift=2 * (number - len(lines) / 2))
        body.append(_write(_WIDTH - _RIGHT + 12, _TOP + 16 * (number + 1), name, colour=colour))
    return "\n".join([*body, "</svg>"]) + "\n"


class _Frame:
    """Scales and edges of the picture."""

    def __init__(self, points: _Points) -> None:
        self._most = max((point[0] for point in points), default=2)
        self._low = math.floor(10 * min([0.0, *(point[2] for point in points)])) / 10
        self._high = math.ceil(10 * max([0.1, *(point[3] for point in points)])) / 10

    def draw_axes(self) -> list[str]:
        """Both axes' lines and numbers."""
        drawn = []
        for step in range(_TICKS + 1):
            value = self._low + (self._high - self._low) * step / _TICKS
            drawn.append(_stroke(_LEFT, self._up(value), _WIDTH - _RIGHT, self._up(value), "#ddd"))
            drawn.append(_write(_LEFT - 6, self._up(value) + 4, f"{value:.2f}", "end"))
        counts = range(1, self._most + 1)
        low = _HEIGHT - _BOTTOM + 16
        return [*drawn, *(_write(self._across(count), low, str(count), "middle") for count in counts)]

    def draw_line(self, points: _Points, colour: str, shift: float) -> list[str]:
        """The line through the points, with intervals `shift` apart from the points."""
        drawn = []
        for references, _, low, high in points:
            across = self._across(references) + shift
            drawn.append(_stroke(across, self._up(low), across, self._up(high), colour, ' opacity=".4"'))
        corners = " ".join(f"{self._across(point[0]):.1f},{self._up(point[1]):.1f}" for point in points)
        return [*drawn, f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>']

    def _across(self, references: float) -> float:
        return _LEFT + (references - 1) / (self._most - 1) * (_WIDTH - _LEFT - _RIGHT)

    def _up(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self._low) / (self._high - self._low) * (_HEIGHT - _TOP - _BOTTOM)


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _write(x: float, y: float, text: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
