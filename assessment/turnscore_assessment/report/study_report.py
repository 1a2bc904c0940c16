"""The report on one study: all of its figures. Writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from turnscore_assessment.figures import Floats, Interval, correlate, correlate_ranks, find_interval
from turnscore_assessment.ratings.form import StudyDescription
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.ratings.rating_table import Flags, RatingTable, build_table, group_rows
from turnscore_assessment.report.effort import Effort, measure_effort
from turnscore_assessment.report.rater_agreement import PairAgreement, measure_pairs
from turnscore_assessment.scoring.quality_control import ControlledWorker, control_quality, find_passing
from turnscore_assessment.scoring.significance import ComparedPair, compare_pairs
from turnscore_assessment.scoring.standardization import standardize
from turnscore_assessment.scoring.system_scores import (
    OVERALL,
    SystemScore,
    choose_rows,
    resample_systems,
    score_systems,
    sum_values,
)

PASSED, FAILED, EVERYONE = "passed", "failed", "all"
LEAST_SYSTEMS = 3
"""With fewer systems, correlations over systems are always 1 or -1. Specified."""


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """All figures of a study, and how to get them again."""

    description: StudyDescription
    rounds: int
    seed: int
    workers: Sequence[ControlledWorker]
    systems: Sequence[SystemScore]
    """Best first."""
    pairs: Sequence[ComparedPair]
    criteria: Mapping[tuple[str, str], tuple[float, float]]
    """By two criteria: Pearson's and Spearman's correlation over systems, of raw scores as published."""
    agreement: Mapping[str, PairAgreement]
    effort: Mapping[str, Effort]

    @property
    def passing(self) -> int:
        return sum(worker.passes for worker in self.workers)


def build_report(ratings: RatingFile, rounds: int, seed: int) -> StudyReport:
    """The report. TooFewError where no worker passes."""
    table = build_table(ratings)
    workers = control_quality(table)
    passing = find_passing(workers)
    chosen = choose_rows(table, passing)
    z = standardize(table)
    sums = sum_values(table, z, chosen)
    raw = sum_values(table, table.ratings, chosen)
    draws = resample_systems(sums, rounds, seed)
    systems = score_systems(table, sums, raw, [draws, resample_systems(raw, rounds, seed)])
    means = z.mean(axis=1)
    return StudyReport(
        description=ratings.description,
        rounds=rounds,
        seed=seed,
        workers=workers,
        systems=systems,
        pairs=_compare(table, systems, means, chosen, draws),
        criteria=correlate_criteria(systems, [OVERALL, *ratings.description.names]),
        agreement={
            PASSED if does_pass else FAILED: found
            for does_pass, found in measure_pairs(ratings, table, means, passing, seed).items()
        },
        effort=_measure_effort(ratings, table, passing),
    )


def correlate_criteria(
    systems: Sequence[SystemScore], names: Sequence[str]
) -> dict[tuple[str, str], tuple[float, float]]:
    """How criteria go together over systems, by their raw scores; empty for fewer than three systems."""
    if len(systems) < LEAST_SYSTEMS:
        return {}
    columns = {name: [system.raw[name].value for system in systems] for name in names}
    return {
        (left, right): (correlate(columns[left], columns[right]), correlate_ranks(columns[left], columns[right]))
        for left, right in combinations(names, 2)
    }


def _compare(
    table: RatingTable, systems: Sequence[SystemScore], means: Floats, chosen: Flags, draws: Floats
) -> list[ComparedPair]:
    order = [system.system for system in systems]
    number_of = {name: number for number, name in enumerate(table.systems)}
    rows = np.flatnonzero(chosen)
    of_system = group_rows(table.system_of[rows], len(table.systems))
    values = {name: means[rows[of_system[number_of[name]]]] for name in order}
    overall = draws[:, :, -1]
    workers = len(np.unique(table.worker_of[rows]))
    differences: dict[tuple[str, str], Interval] = {}
    for first, second in combinations(order, 2):
        gap = float(values[first].mean() - values[second].mean())
        drawn = overall[:, number_of[first]] - overall[:, number_of[second]]
        differences[first, second] = find_interval(gap, drawn, workers)
    return compare_pairs(values, order, differences)


def _measure_effort(ratings: RatingFile, table: RatingTable, passing: Flags) -> dict[str, Effort]:
    does_pass = passing[table.worker_of]
    rows = ratings.dialogues
    return {
        PASSED: measure_effort(row for row, passes in zip(rows, does_pass, strict=True) if passes),
        FAILED: measure_effort(row for row, passes in zip(rows, does_pass, strict=True) if not passes),
        EVERYONE: measure_effort(rows),
    }
