"""The page's section on trainings of the full size, each beside the small one. Trains and measures nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnscore_assessment.agreement.report import NOTHING
from turnscore_assessment.rendering import table_head, table_row

from turnscore_exporters.baselines.page.cells import is_trivial, list_sizes, name_row
from turnscore_exporters.baselines.page.published import COMPARISONS, Report

COMMAND = "turnscore-train baselines --data DATA --output OUTPUT --full"
NOTE = (
    "What the full size is, says [models/baselines.md](models/baselines.md#two-sizes). Held out and DailyDialog++: "
    "AUC; sets: Spearman, or AUC of ConvAI's thumbs."
)


def compare_sizes(small: Sequence[Report], full: Sequence[Report]) -> list[str]:
    """Lines of the section; none without reports of the full size."""
    if not full:
        return []
    only = [] if len(full) == len(COMPARISONS) else [f"--only {report['name']}" for report in full]
    command = " ".join([COMMAND, *only])
    lines = ["", "## The full size", ""]
    lines += [f"Written by `{command}` on {max(report['date'] for report in full)}. {NOTE}", "", *list_sizes(full)]
    sets = list(dict.fromkeys(name for report in full for name in report["development"]))
    header = ["score", "size", "held out", "random responses", "adversarial responses", *sets]
    lines += ["", *table_head(header)]
    beside = {report["name"]: report for report in small}
    for report in full:
        for score in _scores(report):
            for size, found in (("small", beside.get(report["name"])), ("full", report)):
                if found is not None:
                    lines.append(table_row([name_row(report["name"], score), size, *_figures(found, score, sets)]))
    return lines


def _scores(report: Report) -> list[str]:
    """The scores of every set, in order."""
    rows = (score for found in report["development"].values() for score in found["rows"])
    return [score for score in dict.fromkeys(rows) if not is_trivial(score)]


def _figures(report: Report, score: str, sets: Sequence[str]) -> list[str]:
    responses = report.get("adversarial") or {}
    found = [report.get("held_out", {}).get("auc", {}).get(score)]
    found += [responses.get(kind, {}).get(score, {}).get("auc") for kind in ("random", "adversarial")]
    found += [_agreement(report["development"], name, score) for name in sets]
    return [NOTHING if each is None else f"{each:.3f}" for each in found]


def _agreement(development: Mapping[str, Any], name: str, score: str) -> float | None:
    figures = development.get(name, {}).get("rows", {}).get(score)
    value: float | None = None if figures is None else figures["agreement"][0]
    return value
