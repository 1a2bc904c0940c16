"""The picture: every score against people's judgements, a point per observation. Draws to a file, never to a screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turnscore_assessment.agreement.measurement import Row
from turnscore_assessment.agreement.observations import Column
from turnscore_assessment.agreement.report import MeasuredLevel, format_interval

PANEL_INCHES = 4.2
DOTS_PER_INCH = 120
MOST_COLOURS = 10
"""Systems with a colour of their own, as many as matplotlib's default cycle has."""


def draw_scatter(levels: Sequence[MeasuredLevel], path: Path) -> None:
    """Writes a PNG: a row of panels per score, a panel per level, systems in colours."""
    names = [column.name for column in levels[0].observations.columns if not column.is_baseline]
    figure = Figure(figsize=(PANEL_INCHES * len(levels), PANEL_INCHES * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), len(levels), squeeze=False)
    for across, level in enumerate(levels):
        for down, name in enumerate(names):
            _draw_panel(panels[down][across], level, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_panel(panel: Any, level: MeasuredLevel, name: str) -> None:
    observations = level.observations
    column: Column = next(each for each in observations.columns if each.name == name)
    row: Row = next(each for each in level.groups[0].rows if each.name == name)
    systems = np.array([system or "(unnamed)" for system in observations.systems])
    shown = np.unique(systems)
    has_colours = 1 < len(shown) <= MOST_COLOURS
    for system in shown if has_colours else [None]:
        chosen = np.full(len(systems), True) if system is None else systems == system
        # Fainter points where there are many, so that dense places do not fill up. Chosen.
        faintness = float(np.clip(100 / len(systems), 0.15, 0.8))
        panel.scatter(
            column.values[chosen],
            observations.qualities[chosen],
            s=10,
            alpha=faintness,
            linewidths=0,
            label=system,
        )
    if has_colours:
        for handle in panel.legend(fontsize="x-small").legend_handles:
            handle.set_alpha(1)
    panel.set_title(
        f"{name}, {observations.level}s: Spearman {format_interval(row.figures.spearman)}", fontsize="small"
    )
    panel.set_xlabel(name)
    panel.set_ylabel("quality")
