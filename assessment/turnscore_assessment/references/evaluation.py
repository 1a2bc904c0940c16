"""Evaluation: a file's rows by metrics and reducers, per system, and their correlation with people's ratings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from turnscore_assessment.figures import Floats, Williams, williams_test
from turnscore_assessment.references.comparisons import Comparison, by_system
from turnscore_assessment.references.correlation import Agreement, correlate
from turnscore_assessment.references.diversity import Diversity, measure_diversity
from turnscore_assessment.references.metrics.metric import ComparesCorpus, Metric
from turnscore_assessment.references.reducers import JOINT, Tables, fits, groups_of
from turnscore_assessment.references.tokenisation import is_empty

Level = Literal["segment", "corpus"]
GROWING: Final = ("max", "mean")
"""Reducers whose correlation is also taken with the first one, two, ... references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One system by one metric under one reducer: the mean over rows, or the number of the pooled statistics."""

    system: str
    metric: str
    definition: str
    tokenisation: str
    reducer: str
    level: Level
    rows: int
    hypotheses: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlated:
    """One metric under one reducer against the ratings, with the first `references` references of each row."""

    metric: str
    definition: str
    tokenisation: str
    reducer: str
    references: int
    agreement: Agreement
    against_first: Williams | None
    """Against the evaluation's first metric under the same reducer, with as many references; None for that metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All results of a file."""

    rows: int
    contexts: int
    rated_rows: int
    empty: dict[str, int] = field(default_factory=dict)
    """Hypotheses without a word, by system; systems without any are left out."""
    results: list[Result] = field(default_factory=list)
    diversity: list[Diversity] = field(default_factory=list)
    correlations: list[Correlated] = field(default_factory=list)


def evaluate(
    rows: Sequence[Comparison], metrics: Sequence[Metric], reducers: Sequence[str], tokenisation: str = "blanks"
) -> Evaluation:
    """Every metric under every reducer that fits it; correlations where at least one row is rated."""
    rated = [place for place, row in enumerate(rows) if row.rating is not None]
    tables = [Tables(metric, rows) for metric in metrics]
    return Evaluation(
        rows=len(rows),
        contexts=len({row.context_id for row in rows}),
        rated_rows=len(rated),
        empty=_count_empty(rows, tokenisation),
        results=[result for each in tables for result in _measure(each, reducers)],
        diversity=measure_diversity(rows, tokenisation),
        correlations=_correlate_all([each.take(rated) for each in tables], reducers) if rated else [],
    )


def _count_empty(rows: Sequence[Comparison], tokenisation: str) -> dict[str, int]:
    counts = {
        system: sum(is_empty(text, tokenisation) for row in own for text in row.hypotheses)
        for system, own in by_system(rows).items()
    }
    return {system: count for system, count in counts.items() if count}


def _measure(tables: Tables, reducers: Sequence[str]) -> list[Result]:
    metric, rows = tables.metric, tables.rows
    reduced = {reducer: tables.reduce(reducer) for reducer in reducers if fits(reducer, metric)}
    found = []
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.system, []).append(place)
    for system, own in by_system(rows).items():
        hypotheses = sum(len(row.hypotheses) for row in own)
        values: list[tuple[str, Level, float]] = [
            (reducer, "segment", float(column[places[system]].mean())) for reducer, column in reduced.items()
        ]
        if isinstance(metric, ComparesCorpus):
            values.append((JOINT, "corpus", metric.compare_corpus(groups_of(own))))
        for reducer, level, value in values:
            found.append(
                Result(
                    system=system,
                    metric=metric.name,
                    definition=metric.definition,
                    tokenisation=metric.tokenisation,
                    reducer=reducer,
                    level=level,
                    rows=len(own),
                    hypotheses=hypotheses,
                    value=value,
                )
            )
    return found


def _correlate_all(of_metrics: Sequence[Tables], reducers: Sequence[str]) -> list[Correlated]:
    rows = of_metrics[0].rows
    ratings = np.array([row.rating for row in rows], dtype=np.float64)
    contexts = [row.context_id for row in rows]
    first: dict[tuple[str, int], Floats] = {}
    found = []
    for tables in of_metrics:
        metric = tables.metric
        for reducer, references in _choose_columns(metric, rows, reducers):
            column = tables.reduce_first(reducer, references)
            leader = first.setdefault((reducer, references), column)
            found.append(
                Correlated(
                    metric=metric.name,
                    definition=metric.definition,
                    tokenisation=metric.tokenisation,
                    reducer=reducer,
                    references=references,
                    agreement=correlate(column, ratings, contexts),
                    against_first=None if leader is column else williams_test(leader, column, ratings),
                )
            )
    return found


def _choose_columns(metric: Metric, rows: Sequence[Comparison], reducers: Sequence[str]) -> list[tuple[str, int]]:
    """Each reducer with its numbers of references: 1, 2, ... for some, all for the others."""
    most = max(len(row.references) for row in rows)
    columns: list[tuple[str, int]] = []
    for reducer in reducers:
        if not fits(reducer, metric):
            continue
        if reducer in GROWING:
            columns += [(reducer, count) for count in range(1, most + 1)]
        else:
            columns.append((reducer, 1 if reducer == "single" else most))
    return columns
