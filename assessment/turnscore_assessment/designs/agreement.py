"""Raters' agreement in a design: reliability and split halves. The same for all designs."""

from dataclasses import dataclass

import numpy as np

from turnscore_assessment.designs.answer_file import OptionTable
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, correlate_ranks
from turnscore_assessment.reliability.intraclass import Intraclass, measure_intraclass, step_up
from turnscore_assessment.reliability.krippendorff import measure_alpha

SPLITS = 100
"""Random splits of the raters in halves, as Kiritchenko & Mohammad (2017) make."""
LEAST_ITEMS = 3
"""Fewest items in both halves for a correlation: of two it is always 1 or -1. Specified."""
MOST_CELLS = 20_000_000
"""Most cells of the table of items by raters. Chosen: 160 MB, and more than any study has."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of the values that the scores are made of; None where too few raters judged the same items."""

    alpha_interval: float | None
    """Krippendorff's alpha, interval scale."""
    intraclass: Intraclass | None
    """ICC with k, the raters of an item: compare designs by the figures of one rater, unless k is the same."""
    split_half: float | None
    """Mean Spearman correlation of items' means in two random halves of the raters, stepped up to all of them."""


def measure_agreement(values: Floats, table: OptionTable, *, splits: int = SPLITS) -> Agreement:
    """The agreement about items; a rater's several answers about one item count by their mean."""
    nothing = Agreement(alpha_interval=None, intraclass=None, split_half=None)
    ratings = _lay_out(values, table)
    if ratings is None:
        return nothing
    try:
        alpha = measure_alpha(ratings, "interval")
        intraclass = measure_intraclass(ratings)
    except TooFewError:
        return nothing
    return Agreement(
        alpha_interval=None if np.isnan(alpha) else alpha,
        intraclass=intraclass,
        split_half=_split(ratings, splits),
    )


def _lay_out(values: Floats, table: OptionTable) -> Floats | None:
    """A row per item, a column per rater, NaN where there is no value; None where that is too large."""
    kept = np.isfinite(values)
    rows = np.unique(table.item[kept], return_inverse=True)[1].reshape(-1)
    columns = np.unique(table.rater[kept], return_inverse=True)[1].reshape(-1)
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        return None
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (rows, columns), values[kept])
    np.add.at(counts, (rows, columns), 1)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / counts)


def _split(ratings: Floats, splits: int) -> float | None:
    generator = np.random.default_rng(0)
    raters = ratings.shape[1]
    given, sums = ~np.isnan(ratings), np.nan_to_num(ratings)
    found = []
    for _ in range(splits):
        half = generator.permutation(raters) < raters // 2
        counts = given[:, half].sum(axis=1), given[:, ~half].sum(axis=1)
        both = (counts[0] > 0) & (counts[1] > 0)
        if both.sum() < LEAST_ITEMS:
            continue
        means = sums[both][:, half].sum(axis=1) / counts[0][both], sums[both][:, ~half].sum(axis=1) / counts[1][both]
        found.append(correlate_ranks(*means))
    kept = [each for each in found if not np.isnan(each)]
    return step_up(float(np.mean(kept)), 2) if kept else None
