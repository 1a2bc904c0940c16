"""The report on one study: all of its figures, rater agreement and effort among them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median

import numpy as np

from turnscore_assessment.figures import (
    CONFIDENCE,
    Flags,
    Floats,
    Interval,
    compute_pearson,
    compute_spearman,
    correlate_rows,
    find_interval,
    find_resampled_p,
)
from turnscore_assessment.ratings import scoring
from turnscore_assessment.ratings.rating_file import OVERALL, RatedDialogue, RatingFile, StudyDescription, group_rows
from turnscore_assessment.ratings.scoring import (
    ComparedPair,
    ControlledWorker,
    ControlVerdict,
    JudgedStudy,
    SystemScore,
)
from turnscore_assessment.rendering import (
    NOTHING,
    Page,
    Section,
    Table,
    draw_histogram,
    draw_intervals,
    draw_matrix,
    show,
    show_p,
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The effort of a group of workers; None where the file does not have it."""

    workers: int
    dialogues: int  # How many dialogues, those with a degraded system included.
    ordinary_dialogues: int
    minutes_per_dialogue: float | None  # The mean over all dialogues, as published.
    # What people wrote: the median over dialogues with ordinary systems, as published.
    words_per_dialogue: float | None
    words_per_input: float | None  # The median over single inputs of the same dialogues.


def measure_effort(dialogues: Iterable[RatedDialogue]) -> Effort:
    """The effort behind these dialogues."""
    rows = list(dialogues)
    typed = [row.turns for row in rows if row.turns and not row.degraded]
    inputs = [[len(turn.text.split()) for turn in turns if turn.speaker == "user"] for turns in typed]
    return Effort(
        workers=len({row.worker for row in rows}),
        dialogues=len(rows),
        ordinary_dialogues=sum(not row.degraded for row in rows),
        minutes_per_dialogue=_apply(fmean, [row.seconds / 60 for row in rows if row.seconds is not None]),
        words_per_dialogue=_apply(median, [sum(counts) for counts in inputs]),
        words_per_input=_apply(median, [count for counts in inputs for count in counts]),
    )


def _apply(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return float(statistic(values)) if values else None


LEAST_DIALOGUES = 3  # With two dialogues, a correlation is always 1 or -1. Specified.
MOST_PAIRS = 200_000  # of more, those of random assignments; chosen: 300 times the published study's
BIN_EDGES = np.round(np.arange(-1, 1.01, 0.1), 1)


@dataclass(frozen=True, kw_only=True)
class PairAgreement:
    """The correlations of pairs of assignments that rated the same systems."""

    pairs: int
    undefined: int  # Pairs in which an assignment gave one rating to everything.
    median: float  # NaN where there is no pair.
    # The median without the degraded system, by which workers are selected, so that it raises `median`.
    ordinary_median: float = float("nan")
    histogram: Sequence[int]  # How many pairs lie in each tenth from -1 to 1.


def measure_pairs(study: JudgedStudy) -> dict[bool, PairAgreement]:
    """Pearson's r of every pair of assignments with the same systems: of workers who pass, and of those who fail.

    Systems are compared by name and each dialogue's mean z over criteria, the degraded one among them (Ji et al. 2022,
    figure 2). A worker who did two such HITs is a pair, too, as published.
    """
    every = _measure_rows(study, np.ones_like(study.chosen))
    ordinary = _measure_rows(study, ~study.table.is_degraded)
    return {does_pass: replace(found, ordinary_median=ordinary[does_pass].median) for does_pass, found in every.items()}


def _measure_rows(study: JudgedStudy, chosen: Flags) -> dict[bool, PairAgreement]:
    groups: dict[bool, dict[tuple[str, ...], list[Floats]]] = {True: {}, False: {}}
    names, means, table = [dialogue.system for dialogue in study.ratings.dialogues], study.means, study.table
    for assigned in group_rows(table.assignment_of, int(table.assignment_of.max()) + 1):
        rows = assigned[chosen[assigned]]
        if len(rows) >= LEAST_DIALOGUES:
            ordered = sorted(rows, key=lambda row: names[row])
            met = tuple(names[row] for row in ordered)
            groups[bool(study.passing[table.worker_of[rows[0]]])].setdefault(met, []).append(means[ordered])
    return {does_pass: _correlate_all(list(found.values())) for does_pass, found in groups.items()}


def _correlate_all(groups: Sequence[Sequence[Floats]]) -> PairAgreement:
    total = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    share, generator = np.sqrt(min(1.0, MOST_PAIRS / max(total, 1))), np.random.default_rng(0)
    stacked = [np.stack(group) for group in groups]
    if share < 1:
        stacked = [generator.permutation(rows)[: max(2, int(share * len(rows)))] for rows in stacked]
    found = [correlate_rows(rows[place][None], rows[place + 1 :]) for rows in stacked for place in range(len(rows) - 1)]
    correlations = np.concatenate([np.empty(0), *found])
    defined = correlations[~np.isnan(correlations)]
    return PairAgreement(
        pairs=len(defined),
        undefined=len(correlations) - len(defined),
        median=float(np.median(defined)) if defined.size else float("nan"),
        histogram=[int(count) for count in np.histogram(defined, BIN_EDGES)[0]],
    )


PASSED, FAILED, EVERYONE = "passed", "failed", "all"


@dataclass(frozen=True)
class CorrelatedCriteria:
    """How two criteria go together over systems, by raw scores as published."""

    first: str
    second: str
    pearson: float
    spearman: float


@dataclass(frozen=True)
class RawMeans:
    """A system's mean ratings by all workers, those who fail among them; negative criteria reversed."""

    system: str
    degraded: bool
    dialogues: int
    means: Mapping[str, float]  # Overall first, then by criterion.


def average_raw(study: JudgedStudy) -> list[RawMeans]:
    """Every system, the degraded one among them, best first."""
    rows_of: dict[tuple[str, bool], list[int]] = {}
    for row, dialogue in enumerate(study.ratings.dialogues):
        rows_of.setdefault((dialogue.system, dialogue.degraded), []).append(row)
    found = []
    for (system, degraded), rows in rows_of.items():
        means = study.table.ratings[rows].mean(axis=0).tolist()
        by_name = dict(zip([OVERALL, *study.ratings.description.names], [fmean(means), *means], strict=True))
        found.append(RawMeans(system, degraded, len(rows), by_name))
    return sorted(found, key=lambda each: -each.means[OVERALL])


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """All figures of a study, and how to get them again."""

    description: StudyDescription
    rounds: int
    seed: int
    workers: Sequence[ControlledWorker]  # Numbered, not named.
    systems: Sequence[SystemScore]  # Best first; none where no worker passes.
    raw: Sequence[RawMeans]
    pairs: Sequence[ComparedPair]
    criteria: Sequence[CorrelatedCriteria]  # Every two criteria; empty for fewer than three systems.
    agreement: Mapping[str, PairAgreement]
    effort: Mapping[str, Effort]

    @property
    def passing(self) -> int:
        return sum(worker.passes for worker in self.workers)


def build_report(ratings: RatingFile, rounds: int, seed: int) -> StudyReport:
    study = scoring.judge_study(ratings, needs_passing=False)
    draws = scoring.resample_systems(study.sums, rounds, seed)
    systems = scoring.score_systems(study, [draws, scoring.resample_systems(study.raw_sums, rounds, seed)])
    rows = list(zip(ratings.dialogues, study.passing[study.table.worker_of], strict=True))
    return StudyReport(
        description=ratings.description,
        rounds=rounds,
        seed=seed,
        workers=[replace(worker, worker=str(number)) for number, worker in enumerate(study.workers, start=1)],
        systems=systems,
        raw=average_raw(study),
        pairs=_compare(study, systems, draws),
        criteria=correlate_criteria(systems, [OVERALL, *ratings.description.names]),
        agreement={PASSED if does_pass else FAILED: found for does_pass, found in measure_pairs(study).items()},
        effort={
            PASSED: measure_effort(row for row, passes in rows if passes),
            FAILED: measure_effort(row for row, passes in rows if not passes),
            EVERYONE: measure_effort(ratings.dialogues),
        },
    )


def correlate_criteria(systems: Sequence[SystemScore], names: Sequence[str]) -> list[CorrelatedCriteria]:
    """How criteria go together over systems; empty for fewer than three systems."""
    if len(systems) < scoring.LEAST_SYSTEMS:
        return []
    columns = {name: [system.raw[name].value for system in systems] for name in names}
    pairs = [(pair, [columns[name] for name in pair]) for pair in combinations(names, 2)]
    return [CorrelatedCriteria(*pair, compute_pearson(*both), compute_spearman(*both)) for pair, both in pairs]


def _compare(study: JudgedStudy, systems: Sequence[SystemScore], draws: Floats) -> list[ComparedPair]:
    order = [system.system for system in systems]
    number_of = {name: number for number, name in enumerate(study.table.systems)}
    values = {name: study.means[study.chosen & (study.table.system_of == number_of[name])] for name in order}
    differences: dict[tuple[str, str], tuple[Interval, float]] = {}
    for first, second in combinations(order, 2):
        gap = float(values[first].mean() - values[second].mean())
        drawn = draws[:, number_of[first], -1] - draws[:, number_of[second], -1]
        workers = len(study.raters)
        differences[first, second] = find_interval(gap, drawn, workers), find_resampled_p(drawn, workers)
    return scoring.compare_pairs(values, order, differences)


P = 0.05
VERBS = {PASSED: "pass", FAILED: "fail"}
DARK, MIDDLE, LIGHT = 0.85, 0.45, 0.15


def build_page(report: StudyReport, command: str) -> Page:
    """The study in two sentences, then all sections in order."""
    effort = report.effort[EVERYONE]
    kept = sum(system.dialogues for system in report.systems)
    plain, holm = sum(pair.p_two_sided < P for pair in report.pairs), sum(pair.p_holm < P for pair in report.pairs)
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
            *([_show_pairs(report)] if report.pairs else []),
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
    text = (
        "A score is the mean of standardized ratings, negative criteria reversed: 0 is an average rating of the "
        "same worker, 1 one of its standard deviations above."
    )
    title = f"Overall score of each system with its {CONFIDENCE:.0%} interval"
    tables = [
        Table("Standardized scores", header, scores),
        Table(f"{CONFIDENCE:.0%} intervals of the standardized scores", ["system", *names], intervals),
        Table("Raw scores, reversed", header, raw),
    ]
    everyone = [
        [f"{each.system}{' (degraded)' if each.degraded else ''}", each.dialogues]
        + [show(each.means[name], 1) for name in names]
        for each in report.raw
    ]
    plain = Table("Raw means of all workers, whether they pass or not", ["system", "dialogues", *names], everyone)
    if not report.systems:
        return Section("Systems", ["No worker passes the quality control, so no system is scored."], [plain])
    chart = draw_intervals(title, [(system.system, system.scores[OVERALL]) for system in report.systems])
    return Section("Systems", [text], [*tables, plain], [chart])


def _show_pairs(report: StudyReport) -> Section:
    names = [system.system for system in report.systems]
    cells = {}
    for pair in report.pairs:
        for row, column, p in ((pair.first, pair.second, pair.p_better), (pair.second, pair.first, pair.p_worse)):
            cells[row, column] = _describe_cell(p, pair.p_holm)
    rows = [
        [f"{pair.first} over {pair.second}", pair.difference]
        + [show_p(p) for p in (pair.p_workers, pair.p_better, pair.p_two_sided, pair.p_holm, pair.p_benjamini_hochberg)]
        for pair in report.pairs
    ]
    header = ["pair", "difference", "its p", "p one-sided, as published", "p two-sided", "Holm", "Benjamini-Hochberg"]
    texts = [
        "A cell says whether the row's system is rated above the column's: its one-sided p as published. Dark: "
        f"p < {P:g} even two-sided after Holm's correction for all pairs; middle: p < {P:g}; light: p < 0.1.",
        "The published test corrects neither for the number of pairs nor for a worker's dialogues depending on "
        "each other: believe Holm, and the difference's interval from resampled workers, which agrees with its p.",
    ]
    chart = draw_matrix("Which system in a row is better than which in a column", names, cells)
    table = Table("Pairs of systems", header, rows)
    return Section("Which differences are more than chance", texts, [table], [chart])


def _describe_cell(p: float, holm: float) -> tuple[str, float]:
    if p >= 0.1:
        return "", 0.0
    return show_p(p), DARK if p < P and holm < P else MIDDLE if p < P else LIGHT


def _show_control(report: StudyReport) -> Section:
    counts = Counter(str(worker.verdict) for worker in report.workers)
    used = [criterion.name for criterion in report.description.criteria if criterion.is_controlling]
    text = (
        f"A worker passes whose ratings of the degraded system are lower than those of the others, at p < "
        f"{report.description.quality_control_p:g} by a one-sided Mann-Whitney test over the criteria "
        f"{', '.join(used) or 'none'}. Ratings of other workers do not count."
    )
    rows = [[name, str(count), f"{count / len(report.workers):.1%}"] for name, count in counts.most_common()]
    header = ["worker", "outcome", "reason", "degraded rated", "others rated", "p"]
    listed = [
        [
            *(worker.worker, PASSED if worker.passes else FAILED, _explain(worker)),
            *(show(worker.degraded_mean, 1), show(worker.ordinary_mean, 1), show_p(worker.p)),
        ]
        for worker in report.workers
    ]
    tables = [Table("Workers", ["outcome", "workers", "share"], rows), Table("Every worker", header, listed)]
    return Section("Quality control", [text], tables)


def _explain(worker: ControlledWorker) -> str:
    return "rates the degraded system lower" if worker.verdict is ControlVerdict.PASSED else str(worker.verdict)


def _show_agreement(report: StudyReport) -> Section:
    rows = [
        [name, found.pairs, found.median, found.ordinary_median, found.undefined]
        for name, found in report.agreement.items()
    ]
    series = {f"workers who {VERBS[name]}": found.histogram for name, found in report.agreement.items() if found.pairs}
    title = "Correlations of pairs of raters, in percent of pairs"
    text = (
        "Two assignments that met the same systems, degraded ones among them, are correlated over these systems. "
        "The further right, the more alike raters order them; raters who guess lie around 0. Part of the "
        "agreement of those who pass is the degraded system itself, which they were selected for rating lower."
    )
    table = Table("Pairs of assignments", ["workers", "pairs", "median r", "without degraded", "undefined"], rows)
    charts = [draw_histogram(title, list(BIN_EDGES), series)] if series else []
    return Section("Rater agreement", [text], [table], charts)


def _show_effort(report: StudyReport) -> Section:
    rows = [
        [name, each.workers, each.dialogues, show(each.minutes_per_dialogue, 2)]
        + [show(number, 0) for number in (each.words_per_dialogue, each.words_per_input)]
        for name, each in report.effort.items()
    ]
    header = ["workers", "number", "dialogues", "minutes per dialogue", "words per dialogue", "words per input"]
    text = "Minutes are means; words are medians of what people typed, without the degraded systems."
    return Section("Time and words", [text], [Table("What people put in", header, rows)])


def _show_criteria(report: StudyReport) -> Section:
    names = [OVERALL, *report.description.names]

    known = {(each.first, each.second): each.pearson for each in report.criteria}
    known |= {(each.second, each.first): each.spearman for each in report.criteria}
    rows = [[name, *(known.get((name, other), NOTHING) for other in names)] for name in names]
    text = "Over systems, by raw scores as published: Pearson above the diagonal, Spearman below."
    return Section("How criteria go together", [text], [Table("Correlations of criteria", ["criterion", *names], rows)])


def _show_method(report: StudyReport) -> Section:
    return Section(
        "How this was computed",
        [
            "Negative criteria are reversed; every rating is a distance from its worker's mean in its worker's "
            "standard deviations, both over all criteria and dialogues of that worker, the degraded system's among "
            "them. A system's score is the mean over its dialogues and criteria.",
            f"Intervals hold {CONFIDENCE:.0%} of {report.rounds} resamples of whole workers (seed {report.seed}). "
            "Tests are Mann-Whitney tests of each dialogue's mean over criteria.",
            "Definitions: Ji et al., Achieving Reliable Human Assessment of Open-Domain Dialogue Systems, ACL 2022.",
        ],
    )
