"""The page of a study's report: its sentences, charts and tables. Computes nothing but counts."""

import math
from collections import Counter
from collections.abc import Sequence

from turnscore_assessment.figures import CONFIDENCE
from turnscore_assessment.report.charts import draw_histogram, draw_intervals, draw_matrix
from turnscore_assessment.report.html_page import Section, Table
from turnscore_assessment.report.rater_agreement import BIN_EDGES
from turnscore_assessment.report.study_report import EVERYONE, FAILED, PASSED, StudyReport
from turnscore_assessment.scoring.significance import ComparedPair
from turnscore_assessment.scoring.system_scores import OVERALL

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
