"""Rows that several sections of the page share. Measures nothing."""

from collections.abc import Sequence

from turnscore_assessment.agreement.report import NOTHING
from turnscore_assessment.rendering import table_head, table_row

from turnscore_exporters.baselines.page.published import Report

AT_LEAST = "> "
"""Before the seconds of a training that went on from another run's state: that run's are not known."""


def name_row(baseline: str, row: str) -> str:
    """The baseline, and the variant where it has several."""
    return baseline if row == baseline else f"{baseline}: {row}"


def is_trivial(row: str) -> bool:
    """Whether the row is of lengths or positions, not of a score."""
    return row.startswith(("length", "position"))


def list_sizes(reports: Sequence[Report]) -> list[str]:
    """A table of each training's data and cost; with several rows also the sum of seconds."""
    header = ["baseline", "exchanges", "steps", "learning rate", "batch", "wall, s", "CPU, s"]
    lines = table_head(header)
    for report in reports:
        choices = report["choices"]
        told = [f"{report['trained_on']:,}" if "trained_on" in report else NOTHING]
        told += [
            f"{choices[name]:,}" if choices[name] else NOTHING for name in ("steps", "learning_rate", "batch_size")
        ]
        told += [_seconds(report, name) for name in ("seconds", "cpu_seconds")]
        lines.append(table_row([report["name"], *told]))
    if len(reports) > 1:
        before = AT_LEAST if any(report.get("resumed") for report in reports) else ""
        sums = [f"{before}{sum(report.get(name, 0) for report in reports):,}" for name in ("seconds", "cpu_seconds")]
        lines.append(table_row(["*together*", "", "", "", "", *sums]))
    return lines


def _seconds(report: Report, name: str) -> str:
    before = AT_LEAST if report.get("resumed") else ""
    return f"{before}{report[name]:,}" if name in report else NOTHING
