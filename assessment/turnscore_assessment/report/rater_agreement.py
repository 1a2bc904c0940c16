"""Rater agreement: correlations between assignments that met the same systems. Judges no worker."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.ratings.rating_table import Flags, Integers, RatingTable, group_rows

LEAST_DIALOGUES = 3
"""With two dialogues, a correlation is always 1 or -1. Specified."""
MOST_PAIRS = 200_000
"""Most pairs; of more, so many are drawn. Chosen: three hundred times the published study's."""
BIN_EDGES = np.round(np.arange(-1, 1.01, 0.1), 1)


@dataclass(frozen=True)
class PairAgreement:
    """The correlations of pairs of assignments that rated the same systems."""

    correlations: Floats
    undefined: int
    """Pairs in which an assignment gave one rating to everything."""
    ordinary_median: float = float("nan")
    """The median without the degraded system, by which workers are selected, so that it raises `median`."""

    @property
    def median(self) -> float:
        """The median; NaN where there is no pair."""
        return float(np.median(self.correlations)) if self.correlations.size else float("nan")

    @property
    def histogram(self) -> list[int]:
        """How many pairs lie in each tenth from -1 to 1."""
        return [int(count) for count in np.histogram(self.correlations, BIN_EDGES)[0]]


def measure_pairs(
    ratings: RatingFile, table: RatingTable, means: Floats, passing: Flags, seed: int
) -> dict[bool, PairAgreement]:
    """Pearson's r of every pair of assignments with the same systems: of workers who pass, and of those who fail.

    `means` has each dialogue's mean z over criteria; systems are compared by name, the degraded one among them (Ji et
    al. 2022, figure 2). A worker who did two such HITs is a pair, too, as published.
    """
    every, ordinary = (
        _measure_rows(ratings, table, means, passing, chosen, np.random.default_rng(seed))
        for chosen in (np.ones_like(table.is_degraded), ~table.is_degraded)
    )
    return {does_pass: replace(found, ordinary_median=ordinary[does_pass].median) for does_pass, found in every.items()}


def _measure_rows(
    ratings: RatingFile,
    table: RatingTable,
    means: Floats,
    passing: Flags,
    chosen: Flags,
    generator: np.random.Generator,
) -> dict[bool, PairAgreement]:
    groups: dict[bool, dict[tuple[str, ...], list[Floats]]] = {True: {}, False: {}}
    names = [dialogue.system for dialogue in ratings.dialogues]
    for assigned in group_rows(table.assignment_of, int(table.assignment_of.max()) + 1):
        rows = assigned[chosen[assigned]]
        if len(rows) >= LEAST_DIALOGUES:
            ordered = sorted(rows, key=lambda row: names[row])
            met = tuple(names[row] for row in ordered)
            groups[bool(passing[table.worker_of[rows[0]]])].setdefault(met, []).append(means[ordered])
    return {does_pass: _correlate_all(list(found.values()), generator) for does_pass, found in groups.items()}


def _correlate_all(groups: Sequence[Sequence[Floats]], generator: np.random.Generator) -> PairAgreement:
    total = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    found = [np.empty(0)]
    for group in groups:
        pairs = len(group) * (len(group) - 1) // 2
        if pairs:
            left, right = _choose_pairs(len(group), int(np.ceil(pairs * min(1, MOST_PAIRS / total))), generator)
            found.append(_correlate_rows(np.stack(group), left, right))
    correlations = np.concatenate(found)
    defined = correlations[~np.isnan(correlations)]
    return PairAgreement(defined, len(correlations) - len(defined))


def _choose_pairs(members: int, wanted: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
    if wanted == members * (members - 1) // 2:
        left, right = np.triu_indices(members, 1)
        return left, right
    left = generator.integers(0, members, wanted)
    return left, (left + generator.integers(1, members, wanted)) % members


def _correlate_rows(rows: Floats, left: Integers, right: Integers) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    units = np.divide(centred, norms[:, None], out=np.full_like(centred, np.nan), where=norms[:, None] > 1e-12)
    return np.asarray(np.clip((units[left] * units[right]).sum(axis=1), -1, 1))
