"""A study for metrics: the workers' judgements of dialogues and systems. Knows no metric."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.ratings.rating_table import Flags, Integers, RatingTable, build_table
from turnscore_assessment.scoring.quality_control import control_quality, find_passing
from turnscore_assessment.scoring.standardization import standardize
from turnscore_assessment.scoring.system_scores import OVERALL, SystemSums, choose_rows, sum_values


@dataclass(frozen=True, kw_only=True)
class HumanStudy:
    """The judgements of workers who pass, of ordinary systems."""

    table: RatingTable
    z: Floats
    """Standardized, by row and criterion."""
    chosen: Flags
    """Which rows count."""
    sums: SystemSums
    columns: tuple[str, ...]
    """The criteria, then `overall`."""

    @property
    def raters(self) -> Integers:
        """The numbers of the workers who count."""
        return np.unique(self.table.worker_of[self.chosen])

    @property
    def means(self) -> Floats:
        """Each row's mean z over criteria."""
        return np.asarray(self.z.mean(axis=1))

    def draw_rows(self, per_system: int | None, seed: int) -> Integers:
        """The rows that count, or so many of each system's drawn at random."""
        rows = np.flatnonzero(self.chosen)
        if per_system is None:
            return rows
        generator = np.random.default_rng(seed)
        kept = [
            generator.permutation(rows[self.table.system_of[rows] == system])[:per_system]
            for system in range(len(self.table.systems))
        ]
        return np.sort(np.concatenate(kept))


def judge_study(ratings: RatingFile) -> HumanStudy:
    """Judges the workers; raises TooFewError where none passes."""
    table = build_table(ratings)
    chosen = choose_rows(table, find_passing(control_quality(table)))
    z = standardize(table)
    names: Sequence[str] = ratings.description.names
    return HumanStudy(table=table, z=z, chosen=chosen, sums=sum_values(table, z, chosen), columns=(*names, OVERALL))
