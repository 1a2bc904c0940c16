"""A study's report as files: JSON with every figure, CSV of systems and of pairs, and the HTML page."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turnscore_assessment.analysis.study_report import BIN_EDGES, EVERYONE, FAILED, PASSED, StudyReport
from turnscore_assessment.charts import draw_histogram, draw_intervals, draw_matrix
from turnscore_assessment.figures import CONFIDENCE, Interval, jsonable
from turnscore_assessment.files import to_csv, to_json_text, write_all
from turnscore_assessment.ratings.scoring import OVERALL, THRESHOLDS, ComparedPair
from turnscore_assessment.rendering import Page, Section, Table, write_page

NOTHING = "-"
P = 0.05
DARK, MIDDLE, LIGHT = 0.85, 0.45, 0.15


def summarize(report: StudyReport) -> list[str]:
    """The study in four sentences."""
    effort = report.effort[EVERYONE]
    kept = sum(system.dialogues for system in report.systems)
    plain, holm = (sum(p < P for p in found) for found in (_two_sided(report.pairs), _holm(report.pairs)))
    return [
        f"{report.passing} of {len(report.workers)} workers pass the quality control; {kept} of "
        f"{effort.ordinary_dialogues} rated dialogues with {len(report.systems)} systems are theirs.",
        f"{holm} of {len(report.pairs)} pairs of systems differ at p < {P:g} after Holm's correction; {plain} without.",
    ]


def build_sections(report: StudyReport) -> list[Section]:
    """All sections, in order."""
    return [
        _show_systems(report),
        _show_pairs(report),
        _show_control(report),
        _show_agreement(report),
        _show_effort(report),
        *([_show_criteria(report)] if report.criteria else []),
        _show_method(report),
    ]


def _show_systems(report: StudyReport) -> Section:
    names = [OVERALL, *report.description.names]
    header = ["system", "ratings", *names]

    def rows(kind: str, digits: int) -> list[list[str]]:
        return [
            [system.system, str(system.ratings), *(f"{getattr(system, kind)[name].value:.{digits}f}" for name in names)]
            for system in report.systems
        ]

    ends = [
        [each.system, *(f"[{each.scores[name].low:.3f}, {each.scores[name].high:.3f}]" for name in names)]
        for each in report.systems
    ]
    return Section(
        heading="Systems",
        paragraphs=[
            "A score is the mean of standardized ratings, negative criteria reversed: 0 is an average rating of the "
            "same worker, 1 one of its standard deviations above."
        ],
        charts=[
            draw_intervals(
                f"Overall score of each system with its {CONFIDENCE:.0%} interval",
                [(system.system, system.scores[OVERALL]) for system in report.systems],
            )
        ],
        tables=[
            Table("Standardized scores", header, rows("scores", 3)),
            Table(f"{CONFIDENCE:.0%} intervals of the standardized scores", ["system", *names], ends),
            Table("Raw scores, reversed", header, rows("raw", 2)),
        ],
    )


def _show_pairs(report: StudyReport) -> Section:
    names = [system.system for system in report.systems]
    cells = {}
    for pair in report.pairs:
        for row, column, p in ((pair.first, pair.second, pair.p_better), (pair.second, pair.first, pair.p_worse)):
            cells[row, column] = _describe_cell(row, column, p, pair.p_holm)
    rows = [
        [f"{pair.first} over {pair.second}", str(pair.difference)]
        + [_write_p(p) for p in (pair.p_better, pair.p_two_sided, pair.p_holm, pair.p_benjamini_hochberg)]
        for pair in report.pairs
    ]
    header = ["pair", "difference", "p one-sided, as published", "p two-sided", "Holm", "Benjamini-Hochberg"]
    return Section(
        heading="Which differences are more than chance",
        paragraphs=[
            "A cell says whether the row's system is rated above the column's: its one-sided p as published. Dark: "
            f"p < {P:g} even two-sided after Holm's correction for all pairs; middle: p < {P:g}; light: p < 0.1.",
            "The published test corrects neither for the number of pairs nor for a worker's dialogues depending on "
            "each other: believe Holm, and the difference's interval from resampled workers.",
        ],
        charts=[draw_matrix("Which system in a row is better than which in a column", names, cells)],
        tables=[Table("Pairs of systems", header, rows)],
    )


def _describe_cell(row: str, column: str, p: float, holm: float) -> tuple[str, float, str]:
    if p >= 0.1:
        return "", 0.0, f"{row} is not shown to be better than {column}: p = {_write_p(p)}"
    darkness = DARK if p < P and holm < P else MIDDLE if p < P else LIGHT
    return _write_p(p), darkness, f"{row} is better than {column}: p = {_write_p(p)}, after Holm {_write_p(holm)}"


def _show_control(report: StudyReport) -> Section:
    counts = Counter(str(worker.verdict) for worker in report.workers)
    used = [criterion.name for criterion in report.description.criteria if criterion.is_controlling]
    return Section(
        heading="Quality control",
        paragraphs=[
            f"A worker passes whose ratings of the degraded system are lower than those of the others, at p < "
            f"{report.description.quality_control_p:g} by a one-sided Mann-Whitney test over the criteria "
            f"{', '.join(used) or 'none'}. Ratings of other workers do not count.",
        ],
        tables=[
            Table(
                "Workers",
                ["outcome", "workers", "share"],
                [[name, str(count), f"{count / len(report.workers):.1%}"] for name, count in counts.most_common()],
            )
        ],
    )


def _show_agreement(report: StudyReport) -> Section:
    rows = [
        [
            name,
            str(len(found.correlations)),
            _write(found.median, 3),
            _write(found.ordinary_median, 3),
            str(found.undefined),
        ]
        for name, found in report.agreement.items()
    ]
    series = {
        f"workers who {_verb(name)}": found.histogram
        for name, found in report.agreement.items()
        if sum(found.histogram)
    }
    charts = (
        [draw_histogram("Correlations of pairs of raters, in percent of pairs", list(BIN_EDGES), series)]
        if series
        else []
    )
    return Section(
        heading="Rater agreement",
        paragraphs=[
            "Two assignments that met the same systems, degraded ones among them, are correlated over these systems. "
            "The further right, the more alike raters order them; raters who guess lie around 0. Part of the "
            "agreement of those who pass is the degraded system itself, which they were selected for rating lower."
        ],
        charts=charts,
        tables=[Table("Pairs of assignments", ["workers", "pairs", "median r", "without degraded", "undefined"], rows)],
    )


def _show_effort(report: StudyReport) -> Section:
    rows = [
        [name, str(each.workers), str(each.dialogues), _write(each.minutes_per_dialogue, 2)]
        + [_write(number, 0) for number in (each.words_per_dialogue, each.words_per_input)]
        for name, each in report.effort.items()
    ]
    header = ["workers", "number", "dialogues", "minutes per dialogue", "words per dialogue", "words per input"]
    return Section(
        heading="Time and words",
        paragraphs=["Minutes are means; words are medians of what people typed, without the degraded systems."],
        tables=[Table("What people put in", header, rows)],
    )


def _show_criteria(report: StudyReport) -> Section:
    names = [OVERALL, *report.description.names]

    def cell(row: int, column: int) -> str:
        if row == column:
            return NOTHING
        pair = (names[min(row, column)], names[max(row, column)])
        pearson, spearman = report.criteria[pair]
        return _write(pearson if row < column else spearman, 3)

    rows = [[name, *(cell(row, column) for column in range(len(names)))] for row, name in enumerate(names)]
    return Section(
        heading="How the criteria go together",
        paragraphs=["Over systems, by raw scores as published: Pearson above the diagonal, Spearman below."],
        tables=[Table("Correlations of criteria", ["criterion", *names], rows)],
    )


def _show_method(report: StudyReport) -> Section:
    return Section(
        heading="How this was computed",
        paragraphs=[
            "Negative criteria are reversed; every rating is a distance from its worker's mean in its worker's "
            "standard deviations, both over all criteria and dialogues of that worker, the degraded system's among "
            "them. A system's score is the mean over its dialogues and criteria.",
            f"Intervals hold {CONFIDENCE:.0%} of {report.rounds} resamples of whole workers (seed {report.seed}). "
            "Tests are Mann-Whitney tests of each dialogue's mean over criteria.",
            "Definitions: Ji et al., Achieving Reliable Human Assessment of Open-Domain Dialogue Systems, ACL 2022.",
        ],
    )


def _verb(group: str) -> str:
    return {PASSED: "pass", FAILED: "fail"}[group]


def _two_sided(pairs: Sequence[ComparedPair]) -> list[float]:
    return [pair.p_two_sided for pair in pairs]


def _holm(pairs: Sequence[ComparedPair]) -> list[float]:
    return [pair.p_holm for pair in pairs]


def _write(value: float | None, digits: int) -> str:
    return NOTHING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _write_p(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


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
