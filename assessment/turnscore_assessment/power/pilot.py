"""A pilot study of two systems: the passing workers' ratings of their dialogues. Resamples nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.ratings.rating_table import Flags, RatingTable, build_table, group_rows
from turnscore_assessment.scoring.quality_control import control_quality, find_passing
from turnscore_assessment.scoring.standardization import standardize

OVERALL = "overall"
LEAST_WORKERS = 5
"""Fewest workers who rated both systems, or each of them. Fewer hardly show how workers differ. Chosen."""


class Transform(StrEnum):
    """Of ratings: z-scores of their worker, or as they are."""

    Z = "z"
    RAW = "raw"


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The values of each worker's dialogues: a row per worker, as many values as dialogues, for A and for B."""

    a: Sequence[Floats]
    b: Sequence[Floats]
    is_paired: bool
    """Whether the rows of both are the same workers; otherwise each worker rated one of the systems."""
    transforms: Sequence[str]
    notes: Sequence[str]

    @property
    def difference(self) -> float:
        """The mean over workers of A's mean less B's."""
        return float(np.mean([each.mean() for each in self.a]) - np.mean([each.mean() for each in self.b]))

    @property
    def spread(self) -> float:
        """The standard deviation of a worker's difference if paired, else of a worker's mean within a system."""
        a, b = (np.array([each.mean() for each in side]) for side in (self.a, self.b))
        if self.is_paired:
            return float((a - b).std(ddof=1))
        return float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))

    @property
    def error(self) -> float:
        """The standard error of `difference`."""
        if self.is_paired:
            return self.spread / float(np.sqrt(len(self.a)))
        return self.spread * float(np.sqrt(1 / len(self.a) + 1 / len(self.b)))


def read_pilot(
    ratings: RatingFile,
    a: str,
    b: str,
    *,
    criterion: str = OVERALL,
    transform: Transform = Transform.Z,
    dialogues: int = 1,
) -> Pilot:
    """The pilot's workers who pass the quality control and rated as many dialogues of a system as are planned, two at
    least if that is more than one. Raises AssessmentError or TooFewError naming what is missing.
    """
    table = build_table(ratings)
    names = ratings.description.names
    missing = [name for name in (a, b) if name not in table.systems]
    if missing or a == b:
        reason = f"{missing[0]!r} is no system" if missing else "the two systems are the same"
        raise AssessmentError(f"systems: {reason}; the study has {', '.join(table.systems)}")
    if criterion not in (OVERALL, *names):
        raise AssessmentError(f"criterion: {criterion!r} is none of the study's: {OVERALL}, {', '.join(names)}")
    passing = find_passing(control_quality(table))
    values = standardize(table) if transform is Transform.Z else table.ratings
    column = values.mean(axis=1) if criterion == OVERALL else values[:, names.index(criterion)]
    sides = [_collect(table, column, table.systems.index(system), passing) for system in (a, b)]
    failing = int((~passing).sum())
    notes = [f"{failing} of {len(passing)} workers do not pass the quality control"] if failing else []
    return _choose_workers(sides, min(dialogues, 2), (a, b), [_name(transform), f"criterion {criterion}"], notes)


def _collect(table: RatingTable, column: Floats, system: int, passing: Flags) -> list[Floats]:
    """The values of each passing worker's dialogues with the system."""
    rows = np.flatnonzero(table.system_of == system)
    groups = group_rows(table.worker_of[rows], len(table.workers))
    return [column[rows[group]] for group, passes in zip(groups, passing, strict=True) if passes]


def _choose_workers(
    sides: Sequence[Sequence[Floats]], least: int, names: tuple[str, str], transforms: list[str], notes: list[str]
) -> Pilot:
    """The workers who rated both systems, if they are enough; otherwise those who rated one."""
    both = [(x, y) for x, y in zip(*sides, strict=True) if min(len(x), len(y)) >= least]
    if len(both) >= LEAST_WORKERS:
        return Pilot(a=[x for x, _ in both], b=[y for _, y in both], is_paired=True, transforms=transforms, notes=notes)
    alone = [
        [own for own, other in zip(sides[side], sides[1 - side], strict=True) if len(own) >= least and not len(other)]
        for side in (0, 1)
    ]
    if min(map(len, alone)) < LEAST_WORKERS:
        enough = f"{least} dialogues of each" if least > 1 else "each"
        raise TooFewError(
            f"{len(both)} workers rated {enough} of {names[0]!r} and {names[1]!r}, {len(alone[0])} and {len(alone[1])} "
            f"only one of them; {LEAST_WORKERS} are needed"
        )
    return Pilot(a=alone[0], b=alone[1], is_paired=False, transforms=transforms, notes=notes)


def _name(transform: Transform) -> str:
    if transform is Transform.Z:
        return "z per worker, over all criteria and dialogues"
    return "none: raw ratings, negative criteria reversed"
