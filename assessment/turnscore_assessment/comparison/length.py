"""Whether the length of dialogues explains a difference: the difference at equal length, by regression.

Unpaired: score = a + d * [system A] + b * length. Paired: difference of scores = d + b * difference of lengths. The
interval of d is t's with variances that may differ between dialogues (HC3, MacKinnon & White 1985).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from turnscore_assessment.comparison.difference import ROUNDING, Difference
from turnscore_assessment.figures import CONFIDENCE, Floats, Interval

LARGE_SHARE = 0.5
"""Share of a difference that disappears at equal length, from which the report warns. Chosen."""


@dataclass(frozen=True, kw_only=True)
class LengthEffect:
    """One kind of length beside one score. `at_equal_length` is None where length and system cannot be separated."""

    kind: str
    mean_a: float
    mean_b: float
    at_equal_length: Interval | None
    explained: float | None
    """The share of the difference that disappears at equal length; below 0 where the difference grows."""
    warning: str | None


def measure_length_effect(
    kind: str, found: Difference, scores: tuple[ArrayLike, ArrayLike], lengths: tuple[ArrayLike, ArrayLike]
) -> LengthEffect | None:
    """The difference that remains at equal lengths; None where all lengths are equal."""
    (x, y), (m, n) = ([np.asarray(each, dtype=np.float64) for each in pair] for pair in (scores, lengths))
    every = np.concatenate([m, n])
    if np.ptp(every) <= ROUNDING * np.abs(every).max():
        return None
    design, values = _paired(x - y, m - n) if found.is_paired else _unpaired(x, y, m, n)
    adjusted = _regress(design, values)
    share = _find_share(found, adjusted)
    return LengthEffect(
        kind=kind,
        mean_a=float(m.mean()),
        mean_b=float(n.mean()),
        at_equal_length=adjusted,
        explained=share,
        warning=_find_warning(kind, found, adjusted, share, float(m.mean() - n.mean())),
    )


def _paired(differences: Floats, longer: Floats) -> tuple[Floats, Floats]:
    return np.column_stack([np.ones_like(longer), longer]), differences


def _unpaired(x: Floats, y: Floats, m: Floats, n: Floats) -> tuple[Floats, Floats]:
    is_a = np.repeat([1.0, 0.0], [len(x), len(y)])
    lengths = np.concatenate([m, n])
    return np.column_stack([is_a, np.ones_like(is_a), lengths - lengths.mean()]), np.concatenate([x, y])


def _regress(design: Floats, values: Floats) -> Interval | None:
    """The first coefficient with its interval; None where the columns determine each other or too few rows are left."""
    freedom = len(values) - design.shape[1]
    scaled = design / np.maximum(np.abs(design).max(axis=0), 1e-300)
    if freedom < 1 or np.linalg.matrix_rank(scaled, tol=1e-9 * len(values)) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ values
    leverages = np.einsum("ij,jk,ik->i", design, inverse, design)
    rests = (values - design @ coefficients) / np.maximum(1 - leverages, 1e-9)
    weighted = design * rests[:, None]
    error = float(np.sqrt((inverse @ (weighted.T @ weighted) @ inverse)[0, 0]))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return Interval(value=float(coefficients[0]), low=float(coefficients[0]) - half, high=float(coefficients[0]) + half)


def _find_share(found: Difference, adjusted: Interval | None) -> float | None:
    if adjusted is None or not found.difference.value:
        return None
    return 1 - adjusted.value / found.difference.value


def _find_warning(
    kind: str, found: Difference, adjusted: Interval | None, share: float | None, longer: float
) -> str | None:
    """Only a visible difference can be explained by length; one visible only at equal length is reported too."""
    if adjusted is None:
        return f"{kind}: length and system cannot be separated" if found.is_decided and longer else None
    is_decided = adjusted.low > 0 or adjusted.high < 0
    if found.is_decided and not is_decided:
        return f"{kind}: at equal length there is no visible difference"
    if found.is_decided and share is not None and share > LARGE_SHARE:
        return f"{kind}: length explains {share:.0%} of the difference"
    if is_decided and not found.is_decided:
        return f"{kind}: only at equal length is there a visible difference"
    if found.is_decided and is_decided and adjusted.value * found.difference.value < 0:
        return f"{kind}: at equal length the difference is reversed"
    return None
