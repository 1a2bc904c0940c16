"""Plots: the figures of a watched service over time. The only home of matplotlib here."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from turnscore_load.sampling import Sample
from turnscore_load.steadiness import FIGURES, Window


def plot_samples(samples: Sequence[Sample], windows: Sequence[Window], file: Path) -> None:
    """One panel a figure, the compared windows shaded; the file's suffix says the format."""
    canvas = Canvas(figsize=(8, 7), layout="constrained")
    panels = canvas.subplots(len(FIGURES), 1, sharex=True)
    minutes = [sample.seconds / 60 for sample in samples]
    for panel, figure in zip(panels, FIGURES, strict=True):
        panel.plot(minutes, [figure.read(sample) for sample in samples], linewidth=1)
        panel.set_ylabel(f"{figure.name} {figure.unit and f'({figure.unit})'}")
        panel.set_ylim(bottom=0)
        for begin, end in windows:
            panel.axvspan(begin / 60, end / 60, alpha=0.15)
    panels[-1].set_xlabel("minutes")
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file)
