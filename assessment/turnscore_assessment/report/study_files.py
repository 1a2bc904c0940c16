"""A study's report as files: JSON with every figure, CSV of systems and of pairs, and the HTML page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnscore_assessment.figures import CONFIDENCE, Interval, jsonable
from turnscore_assessment.files import to_csv, to_json_text, write_all
from turnscore_assessment.report.html_page import Page, write_page
from turnscore_assessment.report.rater_agreement import BIN_EDGES
from turnscore_assessment.report.study_page import build_sections, summarize
from turnscore_assessment.report.study_report import StudyReport
from turnscore_assessment.scoring.significance import THRESHOLDS


def write_report(report: StudyReport, folder: Path, command: str, date: str) -> list[Path]:
    """Writes `report.html`, `report.json`, `systems.csv`, `pairs.csv`, replacing old ones; returns their paths."""
    page = Page(
        title=f"Study {report.description.study}",
        summary=summarize(report),
        sections=build_sections(report),
        command=command,
        date=date,
    )
    contents = {
        "report.html": write_page(page),
        "report.json": to_json_text({"command": command, "date": date, **to_json(report)}),
        "systems.csv": _write_csv(_list_systems(report)),
        "pairs.csv": _write_csv(_list_pairs(report)),
    }
    return write_all(folder, contents)


def to_json(report: StudyReport) -> dict[str, Any]:
    """Every figure; undefined ones are null. Workers are numbered, not named."""
    return dict(
        jsonable(
            {
                "study": report.description.model_dump(),
                "resampling": {
                    "rounds": report.rounds,
                    "seed": report.seed,
                    "confidence": CONFIDENCE,
                    "unit": "worker",
                },
                "workers": _describe_workers(report),
                "systems": [
                    vars(system) | {"scores": dict(system.scores), "raw": dict(system.raw)} for system in report.systems
                ],
                "pairs": [
                    vars(pair) | {"outcomes": {f"p<{each:g}": pair.outcome(each) for each in THRESHOLDS}}
                    for pair in report.pairs
                ],
                "criteria": [
                    {"first": first, "second": second, "pearson": pearson, "spearman": spearman}
                    for (first, second), (pearson, spearman) in report.criteria.items()
                ],
                "rater_agreement": _describe_agreement(report),
                "effort": {group: vars(found) for group, found in report.effort.items()},
            }
        )
    )


def _describe_workers(report: StudyReport) -> dict[str, Any]:
    outcomes = [
        {
            "number": number,
            "outcome": str(worker.verdict),
            "passes": worker.passes,
            "p": worker.p,
            "degraded_ratings": worker.degraded_ratings,
            "ordinary_ratings": worker.ordinary_ratings,
        }
        for number, worker in enumerate(report.workers, start=1)
    ]
    return {"total": len(report.workers), "passed": report.passing, "outcomes": outcomes}


def _describe_agreement(report: StudyReport) -> dict[str, Any]:
    return {
        group: {
            "pairs": len(found.correlations),
            "undefined": found.undefined,
            "median": found.median,
            "edges": list(BIN_EDGES),
            "histogram": found.histogram,
        }
        for group, found in report.agreement.items()
    }


def _list_systems(report: StudyReport) -> Iterator[dict[str, Any]]:
    for system in report.systems:
        row: dict[str, Any] = {"system": system.system, "dialogues": system.dialogues, "ratings": system.ratings}
        for kind, scores in (("z", system.scores), ("raw", system.raw)):
            for name, found in scores.items():
                row |= {f"{kind} {name}{end}": value for end, value in _spread(found).items()}
        yield row


def _list_pairs(report: StudyReport) -> Iterator[dict[str, Any]]:
    for pair in report.pairs:
        row = vars(pair).copy()
        row |= {f"difference{end}": value for end, value in _spread(row.pop("difference")).items()}
        yield row | {f"outcome at p<{each:g}": pair.outcome(each) for each in THRESHOLDS}


def _spread(interval: Interval) -> dict[str, float | None]:
    found = interval.to_json()
    return {"": found["value"], " low": found["low"], " high": found["high"]}


def _write_csv(rows: Iterator[dict[str, Any]]) -> str:
    listed = list(rows)
    names = list(listed[0]) if listed else []
    return to_csv(names, ([row[name] for name in names] for row in listed))
