"""The plot: CPU seconds of a corpus by its turns, a line for each way. Measures nothing."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure


def draw_costs(found: Sequence[tuple[str, int, float]], path: Path) -> None:
    """Writes the SVG of (way, turns, CPU milliseconds per turn); the same figures give the same bytes."""
    rcParams["svg.hashsalt"] = "turnscore"
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasSVG(figure)
    panel = figure.subplots()
    for way in dict.fromkeys(each[0] for each in found):
        points = sorted((turns, turns * cpu_ms / 1000) for name, turns, cpu_ms in found if name == way)
        panel.plot([x for x, _ in points], [y for _, y in points], marker="o", label=way.replace("`", ""))
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("system turns")
    panel.set_ylabel("CPU seconds")
    panel.legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})
