"""Metrics against people as files: one HTML page, JSON and CSV. Computes nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_assessment.figures import CONFIDENCE, Interval, jsonable
from turnscore_assessment.files import to_csv, to_json_text, write_all
from turnscore_assessment.metrics.metric_correlation import ComparedMetrics, MeasuredMetric
from turnscore_assessment.report.charts import draw_intervals
from turnscore_assessment.report.html_page import Page, Section, Table, write_page
from turnscore_assessment.scoring.system_scores import OVERALL

NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class MetricsReport:
    """All figures, and how to get them again."""

    study: str
    systems: int
    workers: int
    metrics: Sequence[MeasuredMetric]
    pairs: Sequence[ComparedMetrics]
    notes: Sequence[str]
    rounds: int
    seed: int


def summarize(report: MetricsReport) -> list[str]:
    """Each metric's correlation over systems, in a sentence."""
    return [
        f"{metric.name}: r = {metric.systems[OVERALL].pearson} over {len(metric.means)} systems"
        + (f", {metric.dialogues.pearson} over {metric.dialogues.dialogues} dialogues" if metric.dialogues else "")
        for metric in report.metrics
        if metric.systems
    ]


def write_metrics(report: MetricsReport, folder: Path, command: str, date: str) -> list[Path]:
    """Writes `metrics.html`, `.json` and `.csv`, replacing old ones; returns their paths."""
    page = Page(
        title=f"Metrics against the people of {report.study}",
        summary=[f"{report.workers} workers, {report.systems} systems.", *report.notes],
        sections=[_show_systems(report), _show_criteria(report), _show_dialogues(report), _show_pairs(report)],
        command=command,
        date=date,
    )
    contents = {
        "metrics.html": write_page(page),
        "metrics.json": to_json_text({"command": command, "date": date, **to_json(report)}),
        "metrics.csv": _write_csv(report),
    }
    return write_all(folder, contents)


def to_json(report: MetricsReport) -> dict[str, Any]:
    """Every figure; undefined ones are null."""
    metrics = [
        vars(metric)
        | {
            "systems": {name: vars(each) for name, each in metric.systems.items()},
            "dialogues": vars(metric.dialogues) if metric.dialogues else None,
        }
        for metric in report.metrics
    ]
    pairs = [
        {"first": pair.first, "second": pair.second, "t": pair.found.t, "p": pair.found.p} for pair in report.pairs
    ]
    return dict(jsonable(vars(report) | {"metrics": metrics, "pairs": pairs}))


def _show_systems(report: MetricsReport) -> Section:
    known = [metric for metric in report.metrics if metric.systems]
    rows = []
    for metric in known:
        found = metric.systems[OVERALL]
        figures = [str(found.pearson), str(found.fisher), f"{found.spearman:.3f}", f"{found.kendall:.3f}"]
        rows.append([_write_name(metric), *figures, metric.source])
    header = ["metric", "Pearson, workers resampled", "Fisher's interval", "Spearman", "Kendall", "from"]
    return Section(
        heading="Over systems",
        paragraphs=[
            f"Against people's overall scores. The first interval holds {CONFIDENCE:.0%} of {report.rounds} resamples "
            f"of workers (seed {report.seed}); a resample is noisier than the study, so it lies nearer to 0. Fisher's "
            "is about other systems: with ten of them it is wide, and a metric's rank here is easily chance."
        ],
        charts=[
            draw_intervals(
                "Correlation over systems with Fisher's interval",
                [(metric.name[:24], metric.systems[OVERALL].fisher) for metric in known],
            )
        ]
        if known
        else [],
        tables=[Table("Overall", header, rows)],
    )


def _show_criteria(report: MetricsReport) -> Section:
    known = [metric for metric in report.metrics if metric.systems]
    names = list(known[0].systems) if known else []
    rows = [[_write_name(metric), *(_write(metric.systems[name].pearson.value) for name in names)] for metric in known]
    return Section(
        heading="By criterion",
        paragraphs=["Pearson's r over systems, negative criteria reversed."],
        tables=[Table("Criteria", ["metric", *names], rows)],
    )


def _show_dialogues(report: MetricsReport) -> Section:
    rows = []
    for metric in report.metrics:
        found = metric.dialogues
        if found is None:
            continue
        intervals = [found.pearson, found.spearman, found.given_length, found.within_systems]
        rows.append([_write_name(metric), str(found.dialogues), *map(str, intervals)])
    header = ["metric", "dialogues", "Pearson", "Spearman", "Spearman given length", "Pearson within systems"]
    return Section(
        heading="Over dialogues",
        paragraphs=[
            "Against each dialogue's mean z over criteria, intervals from resampled workers. Within systems each "
            "system's means are taken off both sides: what is left tells a system's good dialogues from its bad ones."
        ],
        tables=[Table("Dialogues", header, rows)],
    )


def _show_pairs(report: MetricsReport) -> Section:
    rows = [[f"{pair.first} over {pair.second}", _write(pair.found.t), _write(pair.found.p)] for pair in report.pairs]
    return Section(
        heading="One metric against another",
        paragraphs=[
            "Williams' test of two correlations with people's overall scores of the same systems, two-sided; t is "
            "above 0 where the first one is higher."
        ],
        tables=[Table("Pairs of metrics", ["pair", "t", "p"], rows)],
    )


def _write_name(metric: MeasuredMetric) -> str:
    return f"{metric.name} (baseline)" if metric.is_baseline else metric.name


def _write(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.3f}"


def _write_csv(report: MetricsReport) -> str:
    rows: list[list[object]] = []
    for metric in report.metrics:
        for name, found in metric.systems.items():
            rows.append([metric.name, "system", name, *_spread(found.pearson), found.spearman])
        if metric.dialogues:
            pearson, spearman = metric.dialogues.pearson, metric.dialogues.spearman.value
            rows.append([metric.name, "dialogue", OVERALL, *_spread(pearson), spearman])
    return to_csv(["metric", "level", "against", "pearson", "low", "high", "spearman"], rows)


def _spread(interval: Interval) -> list[float | None]:
    return list(interval.to_json().values())
