"""What is measured of a scored set: correlations with intervals from resampled dialogues, by system, given length."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnscore_assessment.agreement_table.columns import LENGTH, ScoredSet
from turnscore_assessment.correlations import (
    LEAST_OBSERVATIONS,
    compute_auc,
    compute_partial_correlation,
    compute_pearson,
    compute_spearman,
    draw_dialogues,
    find_partial,
    resample_auc,
    resample_pearson,
    resample_spearman,
)
from turnscore_assessment.figures import Floats, Interval, find_interval

ALL = "all"
LEAST_SYSTEMS = 3
"""With fewer systems, an order says nothing. Specified."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One column's agreement with people's ratings; NaN where undefined."""

    items: int
    agreement: Interval
    """Spearman's rho, or the AUC where people answered good or bad."""
    pearson: Interval
    given_length: Interval
    """The partial Spearman correlation."""


@dataclass(frozen=True)
class SystemFigures:
    """How a column's means over systems correlate with people's, and the systems in its order, best first."""

    pearson: Interval
    spearman: Interval
    order: Sequence[str]
    """Empty where a system has no figure, or all have the same."""


Draws = tuple[int, int]
"""Rounds and seed."""


def measure_set(scored: ScoredSet, draws: Draws) -> dict[str, dict[str, Figures]]:
    """Figures by system, all together first, and column; single systems only where there are several."""
    systems = np.array([item.system for item in scored.judged.items])
    groups = {ALL: np.full(len(systems), True)}
    if len(set(systems)) > 1:
        groups |= {str(name): systems == name for name in np.unique(systems)}
    return {name: dict(_measure_group(scored, chosen, draws)) for name, chosen in groups.items()}


def _measure_group(scored: ScoredSet, chosen: NDArray[np.bool_], draws: Draws) -> Iterator[tuple[str, Figures]]:
    """The columns in order; those of the same items are resampled together."""
    ratings = np.array([item.rating for item in scored.judged.items])
    names = np.array([item.dialogue for item in scored.judged.items])
    columns = scored.columns
    masks = {name: (chosen & ~np.isnan(column)).tobytes() for name, column in columns.items()}
    found: dict[str, Figures] = {}
    for mask in dict.fromkeys(masks.values()):
        kept = np.frombuffer(mask, dtype=np.bool_)
        together = {name: column[kept] for name, column in columns.items() if masks[name] == mask}
        _, dialogue_of = np.unique(names[kept], return_inverse=True)
        length = columns[LENGTH][kept]
        found |= _measure_columns(together, ratings[kept], length, dialogue_of, scored.judged.is_binary, draws)
    yield from ((name, found[name]) for name in columns)


def _measure_columns(
    columns: Mapping[str, Floats],
    ratings: Floats,
    length: Floats,
    dialogue_of: NDArray[np.intp],
    is_binary: bool,
    draws: Draws,
) -> dict[str, Figures]:
    if len(ratings) < LEAST_OBSERVATIONS:
        nothing = find_interval(math.nan, [])
        empty = Figures(items=len(ratings), agreement=nothing, pearson=nothing, given_length=nothing)
        return dict.fromkeys(columns, empty)
    drawn = draw_dialogues(int(dialogue_of.max()) + 1, *draws)
    stacked = np.stack([ratings, length, *columns.values()])
    ranked, straight = (method(stacked, dialogue_of, drawn) for method in (resample_spearman, resample_pearson))
    found = {}
    for place, (name, column) in enumerate(columns.items(), start=2):
        agreement = find_interval(compute_spearman(column, ratings), ranked[:, 0, place])
        if is_binary:
            agreement = find_interval(compute_auc(column, ratings), resample_auc(column, ratings, dialogue_of, drawn))
        partial = compute_partial_correlation(column, ratings, length, ranks=True)
        found[name] = Figures(
            items=len(ratings),
            agreement=agreement,
            pearson=find_interval(compute_pearson(column, ratings), straight[:, 0, place]),
            given_length=find_interval(partial, find_partial(ranked[:, [0, place, 1]][:, :, [0, place, 1]], 2)),
        )
    return found


def order_systems(scored: ScoredSet, draws: Draws) -> tuple[list[str], dict[str, SystemFigures]]:
    """The systems in people's order, and each column's order of them; nothing where there are too few."""
    rated = scored.judged.system_ratings
    names = sorted(rated, key=lambda name: -rated[name])
    if len(names) < LEAST_SYSTEMS:
        return [], {}
    wanted = np.array([rated[name] for name in names])
    of_system = np.array([names.index(item.system) for item in scored.judged.items])
    _, dialogue_of = np.unique([item.dialogue for item in scored.judged.items], return_inverse=True)
    drawn = draw_dialogues(int(dialogue_of.max()) + 1, *draws)
    found = {}
    for name, column in scored.columns.items():
        weights = np.vstack([np.ones(len(column)), drawn[:, dialogue_of]])
        means = _system_means(column, of_system, len(names), weights)
        pearson = [compute_pearson(each, wanted) for each in means]
        spearman = [compute_spearman(each, wanted) for each in means]
        order = sorted(range(len(names)), key=lambda place: -means[0, place])
        found[name] = SystemFigures(
            pearson=find_interval(pearson[0], pearson[1:]),
            spearman=find_interval(spearman[0], spearman[1:]),
            order=[names[place] for place in order] if np.ptp(means[0]) > 0 else [],
        )
    return names, found


def _system_means(column: Floats, of_system: NDArray[np.intp], systems: int, weights: Floats) -> Floats:
    """The column's mean over each system [rounds, systems], each item as often as its weight [rounds, items]."""
    kept = ~np.isnan(column)
    members = np.eye(systems)[of_system[kept]]
    counts = weights[:, kept] @ members
    sums = weights[:, kept] @ (members * column[kept, None])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
