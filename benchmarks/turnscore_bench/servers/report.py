"""The report: JSON and the plot of every run, and the page where one is asked for."""

import json
from dataclasses import asdict
from pathlib import Path

from turnscore_bench.harness import page
from turnscore_bench.servers import plot, tables
from turnscore_bench.servers.results import Measurement, Results

RESULTS_FILE, PLOT_FILE = "results.json", "servers.svg"


def read_results(output: Path) -> Results:
    """What an earlier run wrote into `output`; empty where there was none."""
    file = output / RESULTS_FILE
    if not file.is_file():
        return Results()
    stored = json.loads(file.read_text(encoding="utf-8"))
    return Results(**{**stored, "measurements": [Measurement(**each) for each in stored["measurements"]]})


def write_report(results: Results, output: Path, page_file: Path | None) -> None:
    """Writes into `output`; with a page, its tables, and the plot into the folder of its name beside it.

    Raises MissingMarkersError where the page has no place for them.
    """
    (output / RESULTS_FILE).write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    plot.draw(results, output / PLOT_FILE)
    if page_file:
        folder = page_file.with_suffix("")
        folder.mkdir(exist_ok=True)
        plot.draw(results, folder / PLOT_FILE)
        page.write_between_markers(page_file, tables.tables(results, f"{folder.name}/{PLOT_FILE}"))
