"""The page of a study's report: its sentences, charts and tables. Computes nothing but counts."""

from collections import Counter

from turnscore_assessment.analysis.study_report import BIN_EDGES, EVERYONE, FAILED, PASSED, StudyReport
from turnscore_assessment.charts import draw_histogram, draw_intervals, draw_matrix
from turnscore_assessment.figures import CONFIDENCE
from turnscore_assessment.ratings.scoring import OVERALL
from turnscore_assessment.rendering import NOTHING, Page, Section, Table, show, show_p

P = 0.05
VERBS = {PASSED: "pass", FAILED: "fail"}
DARK, MIDDLE, LIGHT = 0.85, 0.45, 0.15


def build_page(report: StudyReport, command: str) -> Page:
    """The study in two sentences, then all sections in order."""
    effort = report.effort[EVERYONE]
    kept = sum(system.dialogues for system in report.systems)
    plain, holm = (
        sum(p < P for p in found)
        for found in ([pair.p_two_sided for pair in report.pairs], [pair.p_holm for pair in report.pairs])
    )
    return Page(
        title=f"Study {report.description.study}",
        summary=[
            f"{report.passing} of {len(report.workers)} workers pass the quality control; {kept} of "
            f"{effort.ordinary_dialogues} rated dialogues with {len(report.systems)} systems are theirs.",
            f"{holm} of {len(report.pairs)} pairs of systems differ at p < {P:g} after Holm's correction; "
            f"{plain} without.",
        ],
        sections=[
            _show_systems(report),
            _show_pairs(report),
            _show_control(report),
            _show_agreement(report),
            _show_effort(report),
            *([_show_criteria(report)] if report.criteria else []),
            _show_method(report),
        ],
        command=command,
    )


def _show_systems(report: StudyReport) -> Section:
    names = [OVERALL, *report.description.names]
    header = ["system", "ratings", *names]

    scores = [[each.system, each.ratings, *(each.scores[name].value for name in names)] for each in report.systems]
    raw = [[each.system, each.ratings, *(show(each.raw[name].value, 2) for name in names)] for each in report.systems]
    intervals = [[each.system, *(each.scores[name] for name in names)] for each in report.systems]
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
            Table("Standardized scores", header, scores),
            Table(f"{CONFIDENCE:.0%} intervals of the standardized scores", ["system", *names], intervals),
            Table("Raw scores, reversed", header, raw),
        ],
    )


def _show_pairs(report: StudyReport) -> Section:
    names = [system.system for system in report.systems]
    cells = {}
    for pair in report.pairs:
        for row, column, p in ((pair.first, pair.second, pair.p_better), (pair.second, pair.first, pair.p_worse)):
            cells[row, column] = _describe_cell(row, column, p, pair.p_holm)
    rows = [
        [f"{pair.first} over {pair.second}", pair.difference]
        + [show_p(p) for p in (pair.p_better, pair.p_two_sided, pair.p_holm, pair.p_benjamini_hochberg)]
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
        return "", 0.0, f"{row} is not shown to be better than {column}: p = {show_p(p)}"
    darkness = DARK if p < P and holm < P else MIDDLE if p < P else LIGHT
    return show_p(p), darkness, f"{row} is better than {column}: p = {show_p(p)}, after Holm {show_p(holm)}"


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
        [name, found.pairs, found.median, found.ordinary_median, found.undefined]
        for name, found in report.agreement.items()
    ]
    series = {
        f"workers who {VERBS[name]}": found.histogram
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
        [name, each.workers, each.dialogues, show(each.minutes_per_dialogue, 2)]
        + [show(number, 0) for number in (each.words_per_dialogue, each.words_per_input)]
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

    known = {(each.first, each.second): each.pearson for each in report.criteria}
    known |= {(each.second, each.first): each.spearman for each in report.criteria}
    rows = [[name, *(known.get((name, other), NOTHING) for other in names)] for name in names]
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
