"""Metrics' agreement with people: over systems, over dialogues, and whether one metric agrees better than another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from turnscore_assessment.agreement.bootstrap import correlate as correlate_clustered
from turnscore_assessment.figures import (
    Floats,
    Interval,
    Williams,
    bound_by_fisher,
    correlate,
    correlate_order,
    correlate_ranks,
    correlate_rows,
    find_interval,
    williams_test,
)
from turnscore_assessment.metrics.human_study import HumanStudy
from turnscore_assessment.metrics.metric_columns import SYSTEM_WORDS, MetricColumn
from turnscore_assessment.ratings.rating_table import Flags, Integers
from turnscore_assessment.scoring.system_scores import resample_systems, sum_values

LEAST_SYSTEMS = 3
"""With two systems, a correlation is always 1 or -1. Specified."""


@dataclass(frozen=True, kw_only=True)
class SystemCorrelation:
    """One metric against one column of people's, over systems."""

    pearson: Interval
    """With its interval from resampling workers, over whose dialogues a metric by dialogue is averaged."""
    fisher: Interval
    """With Fisher's interval: for other systems."""
    spearman: float
    kendall: float


@dataclass(frozen=True, kw_only=True)
class DialogueCorrelation:
    """One metric against the mean z of each dialogue; intervals from resampling workers."""

    dialogues: int
    pearson: Interval
    spearman: Interval
    given_length: Interval
    """Spearman with the length of system turns held constant; NaN where the file holds no turns."""
    within_systems: Interval
    """Pearson after each system's means are subtracted on both sides: good dialogues against bad ones of one system."""


@dataclass(frozen=True, kw_only=True)
class MeasuredMetric:
    """All figures of one metric."""

    name: str
    source: str
    is_baseline: bool
    means: Mapping[str, float]
    """By system."""
    systems: Mapping[str, SystemCorrelation]
    """By column of people's judgements, overall first; empty for fewer than three systems."""
    dialogues: DialogueCorrelation | None
    """None for a metric by system alone."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetrics:
    """Two metrics' correlations with people's overall scores of systems, by Williams' test."""

    first: str
    second: str
    found: Williams


def measure_metrics(study: HumanStudy, columns: Sequence[MetricColumn], rounds: int, seed: int) -> list[MeasuredMetric]:
    """Every metric against people."""
    human = resample_systems(study.sums, rounds, seed)
    lengths = next((column.values for column in columns if column.name == SYSTEM_WORDS), None)
    return [_measure(study, column, human, lengths, rounds, seed) for column in columns]


def compare_metrics(study: HumanStudy, measured: Sequence[MeasuredMetric]) -> list[ComparedMetrics]:
    """Every two metrics, over the systems that both know."""
    overall = dict(zip(study.table.systems, study.sums.average(study.sums.everyone)[:, -1], strict=True))
    pairs = []
    for first, second in combinations(measured, 2):
        systems = [name for name in overall if name in first.means and name in second.means]
        values = [np.array([each[name] for name in systems]) for each in (first.means, second.means, overall)]
        pairs.append(ComparedMetrics(first=first.name, second=second.name, found=williams_test(*values)))
    return pairs


def _measure(
    study: HumanStudy, column: MetricColumn, human: Floats, lengths: Floats | None, rounds: int, seed: int
) -> MeasuredMetric:
    people = study.sums.average(study.sums.everyone)
    if column.values is None:
        by_system = np.array([(column.systems or {}).get(name, np.nan) for name in study.table.systems])
        draws = np.broadcast_to(by_system, (len(human), len(by_system)))
        dialogues = None
    else:
        rows = np.asarray(study.chosen & ~np.isnan(column.values))
        sums = sum_values(study.table, column.values[:, None], rows, study.raters)
        by_system = sums.average(sums.everyone)[:, 0]
        draws = resample_systems(sums, rounds, seed)[:, :, 0]
        dialogues = _correlate_dialogues(study, column, rows, lengths, rounds, seed)
    known = ~np.isnan(by_system)
    order = [len(study.columns) - 1, *range(len(study.columns) - 1)]
    return MeasuredMetric(
        name=column.name,
        source=column.source,
        is_baseline=column.is_baseline,
        means={name: float(by_system[place]) for place, name in enumerate(study.table.systems) if known[place]},
        systems={
            study.columns[place]: _correlate_systems(
                by_system[known], people[known, place], draws[:, known], human[:, known, place]
            )
            for place in order
        }
        if known.sum() >= LEAST_SYSTEMS
        else {},
        dialogues=dialogues,
    )


def _correlate_systems(metric: Floats, people: Floats, metric_draws: Floats, people_draws: Floats) -> SystemCorrelation:
    pearson = correlate(metric, people)
    return SystemCorrelation(
        pearson=find_interval(pearson, correlate_rows(metric_draws, people_draws)),
        fisher=bound_by_fisher(pearson, len(metric)),
        spearman=correlate_ranks(metric, people),
        kendall=correlate_order(metric, people),
    )


def _correlate_dialogues(
    study: HumanStudy, column: MetricColumn, rows: Flags, lengths: Floats | None, rounds: int, seed: int
) -> DialogueCorrelation:
    assert column.values is not None
    scores, people, workers = column.values[rows], study.means[rows], study.table.worker_of[rows]
    given = {} if lengths is None or column.is_baseline or np.isnan(lengths[rows]).any() else {"length": lengths[rows]}
    found = correlate_clustered(scores, people, given, workers, rounds, seed)
    systems = study.table.system_of[rows]
    within = correlate_clustered(
        _take_means_off(scores, systems), _take_means_off(people, systems), {}, workers, rounds, seed
    )
    return DialogueCorrelation(
        dialogues=int(rows.sum()),
        pearson=found.pearson,
        spearman=found.spearman,
        given_length=found.given["length"]["spearman"] if given else Interval(float("nan")),
        within_systems=within.pearson,
    )


def _take_means_off(values: Floats, groups: Integers) -> Floats:
    counts = np.bincount(groups)
    means = np.bincount(groups, values) / np.maximum(counts, 1)
    return np.asarray(values - means[groups])
