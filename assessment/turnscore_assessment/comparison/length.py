"""Whether the length of dialogues explains a difference: the difference at equal length, by regression.

Unpaired: score = a + d * [system A] + b * length. Paired: difference of scores = d + b * difference of lengths. The
interval of d is t's with variances that may differ between dialogues (HC3, MacKinnon & White 1985).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from turnscore_assessment.comparison.decision import LEVEL
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
    """The share of the difference that disappears at equal length; below 0 if it grows, above 1 if it reverses."""
    warning: str | None


def measure_length_effect(
    kind: str,
    found: Difference,
    scores: tuple[ArrayLike, ArrayLike],
    lengths: tuple[ArrayLike, ArrayLike],
    *,
    is_decided: bool,
    tests: int = 1,
) -> LengthEffect | None:
    """The difference that remains at equal lengths; None where all lengths are equal.

    `is_decided` is the verdict on the difference; a difference at equal length only must hold for so many `tests`.
    """
    (x, y), (m, n) = ([np.asarray(each, dtype=np.float64) for each in pair] for pair in (scores, lengths))
    every = np.concatenate([m, n])
    if np.ptp(every) <= ROUNDING * np.abs(every).max():
        return None
    design, values = _paired(x - y, m - n) if found.is_paired else _unpaired(x, y, m, n)
    adjusted, p_value = _regress(design, values)
    share = _find_share(found, adjusted)
    if adjusted is None:
        is_apart = is_decided and m.mean() != n.mean()
        warning = f"{kind}: length and system cannot be separated" if is_apart else None
    elif is_decided:
        warning = _find_warning(kind, found, adjusted, share)
    else:
        is_new = p_value * tests < LEVEL
        warning = f"{kind}: only at equal length is there a visible difference" if is_new else None
    return LengthEffect(
        kind=kind,
        mean_a=float(m.mean()),
        mean_b=float(n.mean()),
        at_equal_length=adjusted,
        explained=share,
        warning=warning,
    )


def _paired(differences: Floats, longer: Floats) -> tuple[Floats, Floats]:
    return np.column_stack([np.ones_like(longer), longer]), differences


def _unpaired(x: Floats, y: Floats, m: Floats, n: Floats) -> tuple[Floats, Floats]:
    is_a = np.repeat([1.0, 0.0], [len(x), len(y)])
    lengths = np.concatenate([m, n])
    return np.column_stack([is_a, np.ones_like(is_a), lengths - lengths.mean()]), np.concatenate([x, y])


def _regress(design: Floats, values: Floats) -> tuple[Interval | None, float]:
    """The first coefficient with interval and p; None where columns determine each other or too few rows are left."""
    freedom = len(values) - design.shape[1]
    scaled = design / np.maximum(np.abs(design).max(axis=0), 1e-300)
    if freedom < 1 or np.linalg.matrix_rank(scaled, tol=1e-9 * len(values)) < design.shape[1]:
        return None, 1.0
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ values
    leverages = np.einsum("ij,jk,ik->i", design, inverse, design)
    rests = (values - design @ coefficients) / np.maximum(1 - leverages, 1e-9)
    weighted = design * rests[:, None]
    error = float(np.sqrt((inverse @ (weighted.T @ weighted) @ inverse)[0, 0]))
    value, half = float(coefficients[0]), float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p_value = 2 * float(stats.t.sf(abs(value) / error, freedom)) if error else float(not value)
    return Interval(value=value, low=value - half, high=value + half), p_value


def _find_share(found: Difference, adjusted: Interval | None) -> float | None:
    if adjusted is None or not found.difference.value:
        return None
    return 1 - adjusted.value / found.difference.value


def _find_warning(kind: str, found: Difference, adjusted: Interval, share: float | None) -> str | None:
    """What length does to a difference that is decided."""
    if adjusted.low <= 0 <= adjusted.high:
        return f"{kind}: at equal length there is no visible difference"
    if adjusted.value * found.difference.value < 0:
        return f"{kind}: at equal length the difference is reversed ({adjusted.value:+.3f})"
    if share is not None and share > LARGE_SHARE:
        return f"{kind}: length explains {share:.0%} of the difference"
    return None
