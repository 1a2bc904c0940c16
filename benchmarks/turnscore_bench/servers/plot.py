"""The plot: CPU per turn and throughput by the number of clients, a column per mix of lengths. Measures nothing."""

from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from turnscore_bench.servers.results import BARE, Results


def draw(results: Results, path: Path) -> None:
    """Writes the SVG, where anything was measured; the same results give the same bytes."""
    rcParams["svg.hashsalt"] = "turnscore"
    mixes = results.mixes()
    if not mixes:
        return
    figure = Figure(figsize=(4.2 * len(mixes), 7), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(2, len(mixes), squeeze=False)
    for column, mix in enumerate(mixes):
        for row, (label, name) in enumerate((("CPU ms per turn", "cpu_ms"), ("turns per second", "turns_per_second"))):
            _draw_panel(panels[row][column], results, mix, name)
            panels[row][column].set_ylabel(label)
            panels[row][column].set_title(mix)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _draw_panel(panel: Any, results: Results, mix: str, name: str) -> None:
    bare = results.cell(BARE, mix)
    if bare:
        panel.axhline(getattr(bare, name), color="black", linestyle="--", label="bare runtime, ideal batches")
    for key, label in results.labels.items():
        cells = {clients: results.cell(key, mix, clients) for clients in results.clients()}
        points = {clients: getattr(cell, name) for clients, cell in cells.items() if cell}
        panel.plot(list(points), list(points.values()), marker="o", label=label)
    panel.set_xscale("log", base=2)
    panel.set_xticks(results.clients(), [str(each) for each in results.clients()])
    panel.set_xlabel("clients")
    panel.set_ylim(bottom=0)
