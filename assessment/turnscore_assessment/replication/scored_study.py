"""A scored study: what a comparison with another needs, computed once."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import RatingFile
from turnscore_assessment.ratings.rating_table import Flags, RatingTable, build_table
from turnscore_assessment.scoring.quality_control import control_quality, find_passing
from turnscore_assessment.scoring.significance import compare_ranks
from turnscore_assessment.scoring.standardization import standardize
from turnscore_assessment.scoring.system_scores import OVERALL, SystemSums, choose_rows, sum_values

Z, RAW = "z", "raw"


@dataclass(frozen=True, kw_only=True)
class ScoredStudy:
    """The sums of its workers' ratings, standardized and raw, and the ratings of each system's dialogues."""

    name: str
    systems: tuple[str, ...]
    columns: tuple[str, ...]
    """The criteria, then `overall`."""
    sums: Mapping[str, SystemSums]
    """By kind, over workers who pass."""
    groups: Mapping[str, SystemSums]
    """Standardized, over `passed`, `failed` and `all` workers; a group without workers is left out."""
    p_greater: Mapping[tuple[str, str], float]
    """For every ordered pair: the one-sided p that the first system's dialogues are rated higher."""

    @property
    def workers(self) -> int:
        return len(self.sums[Z].dialogues)


def score_study(ratings: RatingFile) -> ScoredStudy:
    """Scores the study; TooFewError where no worker passes."""
    table = build_table(ratings)
    passing = find_passing(control_quality(table))
    chosen = choose_rows(table, passing)
    z = standardize(table)
    return ScoredStudy(
        name=ratings.description.study,
        systems=tuple(table.systems),
        columns=(*ratings.description.names, OVERALL),
        sums={Z: sum_values(table, z, chosen), RAW: sum_values(table, table.ratings, chosen)},
        groups=_sum_groups(table, z, passing),
        p_greater=_test_pairs(table, z.mean(axis=1), chosen),
    )


def _sum_groups(table: RatingTable, z: Floats, passing: Flags) -> dict[str, SystemSums]:
    passes, is_ordinary = passing[table.worker_of], ~table.is_degraded
    rows = {"passed": passes & is_ordinary, "failed": ~passes & is_ordinary, "all": is_ordinary}
    return {name: sum_values(table, z, np.asarray(chosen)) for name, chosen in rows.items() if chosen.any()}


def _test_pairs(table: RatingTable, means: Floats, chosen: Flags) -> dict[tuple[str, str], float]:
    values = {name: means[chosen & (table.system_of == number)] for number, name in enumerate(table.systems)}
    return {
        (first, second): compare_ranks(values[first], values[second], "greater")
        for first, second in permutations(table.systems, 2)
        if len(values[first]) and len(values[second])
    }
