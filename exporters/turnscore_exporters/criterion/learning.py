"""A linear head by ridge regression on the features, cross-validated over dialogues, and what more judgements add.

Ridge regression in place of logistic: on abc-eval, mrbench and dstc7 both rank unseen turns alike, and one
decomposition gives the exact prediction of every turn by a head that saw none of its dialogue, for every penalty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turnscore_assessment import figures
from turnscore_assessment.figures import Floats, Integers

AnyFloats = NDArray[np.floating[Any]]

PENALTIES = 10.0 ** np.arange(-2, 2.01, 0.5)
CONSTANT = 10.0  # The column of the intercept. Chosen: so large that its penalty is none.
ROUNDING = 1e-9  # Share of the largest eigenvalue that counts as 0.


@dataclass(frozen=True, kw_only=True)
class RidgeHead:
    """`features @ weights + bias`; `penalty` is the one whose `crossed` has the least squared error.

    `crossed` [rows] are predictions of the rows that it was made of, each by a head that saw nothing of its dialogue.
    """

    weights: Floats
    bias: float
    penalty: float
    crossed: Floats

    def predict(self, features: AnyFloats) -> Floats:
        """What the head gives [rows] for features [rows, columns]."""
        found: Floats = features @ self.weights + self.bias
        return found


def fit_head(features: Floats, wanted: Floats, dialogue_of: Integers) -> RidgeHead:
    """The head for `wanted` [rows] on features [rows, columns]; `dialogue_of` numbers each row's dialogue.

    Columns are scaled to one standard deviation. Directions that quality's own heads read got no part of their own:
    on abc-eval and mrbench that gave some criteria .03 and took it from others.
    """
    mean, spread = features.mean(0), features.std(0)
    scale = np.where(spread > ROUNDING, 1 / np.maximum(spread, ROUNDING), 0) / np.sqrt(len(mean))
    design = np.full((len(wanted), len(mean) + 1), CONSTANT)
    np.multiply(features - mean, scale, out=design[:, :-1])
    solved = solve_ridge(design, wanted, dialogue_of)
    penalty, missed, crossed = min(solved, key=lambda each: float(((each[2] - wanted) ** 2).mean()))
    found = design.T @ missed / penalty
    weights = found[:-1] * scale
    bias = float(CONSTANT * found[-1] - weights @ mean)
    return RidgeHead(weights=weights, bias=bias, penalty=penalty, crossed=crossed)


def solve_ridge(design: Floats, wanted: Floats, dialogue_of: Integers) -> list[tuple[float, Floats, Floats]]:
    """For every penalty what the regression misses of `wanted`, and its predictions of dialogues that it did not see.

    The weights are `design.T @ missed / penalty`. Predictions without a dialogue follow from those with it and the
    dialogue's block of the hat matrix (Cook and Weisberg 1982, 2.2), so that nothing is fitted again.
    """
    rows, columns = design.shape
    if rows <= columns:
        squares, vectors = np.linalg.eigh(design @ design.T)
        turned = vectors * np.sqrt(np.maximum(squares, 0))
    else:
        squares, vectors = np.linalg.eigh(design.T @ design)
        turned = design @ vectors
    kept = squares > ROUNDING * squares[-1]
    squares, turned = squares[kept], turned[:, kept]
    along = turned.T @ wanted
    order = np.argsort(dialogue_of, kind="stable")
    dialogues = np.split(order, np.flatnonzero(np.diff(dialogue_of[order])) + 1)
    found = []
    for penalty in PENALTIES:
        missed = wanted - turned @ (along / (squares + penalty))
        crossed = np.empty(rows)
        for own in dialogues:
            hat = (turned[own] / (squares + penalty)) @ turned[own].T
            crossed[own] = wanted[own] - np.linalg.solve(np.eye(len(own)) - hat, missed[own])
        found.append((float(penalty), missed, crossed))
    return found


class HeldOut:
    """Judged turns that nothing was fitted on, and resamples of their dialogues that every figure shares.

    Agreement is the area under the ROC curve where all marks are yes or no, else Spearman's rho.
    """

    def __init__(self, wanted: Floats, dialogue_of: Integers, rounds: int = figures.ROUNDS) -> None:
        self.wanted, self.dialogue_of = wanted, np.unique(dialogue_of, return_inverse=True)[1]
        self.is_yes_or_no = set(np.unique(wanted)) <= {0.0, 1.0}
        self.chance = 0.5 if self.is_yes_or_no else 0.0
        self._draws = figures.draw_dialogues(int(self.dialogue_of.max()) + 1, rounds, seed=0)

    @property
    def measure(self) -> str:
        return "AUC" if self.is_yes_or_no else "Spearman"

    def agree(self, scores: Floats) -> float:
        """The agreement of scores [rows]."""
        measure = figures.compute_auc if self.is_yes_or_no else figures.compute_spearman
        return measure(scores, self.wanted)

    def resample(self, scores: Floats) -> Floats:
        """That of each resample [rounds]."""
        if self.is_yes_or_no:
            return figures.resample_auc(scores, self.wanted, self.dialogue_of, self._draws)
        pair = np.stack([scores, self.wanted])
        return np.asarray(figures.resample_spearman(pair, self.dialogue_of, self._draws)[:, 0, 1])

    def compare(self, scores: Floats, others: Floats | None = None) -> figures.Interval:
        """The agreement with its interval, or how much higher it is than that of other scores of the same turns."""
        if others is None:
            return figures.find_interval(self.agree(scores), self.resample(scores))
        higher = self.agree(scores) - self.agree(others)
        return figures.find_interval(higher, self.resample(scores) - self.resample(others))


LEAST_OF_CURVE = 100  # Rows of the smallest point. Chosen: fewer learn hardly anything.
DRAWS, MOST_DRAWN = 8, 2000  # Most draws of a size, and the largest size with more than one: others take minutes.
SIZES = 3  # Fewest sizes that show a trend.
# One over the rows to these: from all but a logarithm to the rate at which the error of a mean falls.
POWERS = (0.05, 0.25, 0.5)


@dataclass(frozen=True)
class CurvePoint:
    """The mean agreement of heads learned from so many rows, over draws of dialogues."""

    rows: int
    draws: int
    agreement: figures.Interval


@dataclass(frozen=True)
class LearningCurve:
    """Agreement by rows, and what twice the rows would add on average over draws; None where the points do not say.

    `spread` is the standard deviation between draws of the largest size that was drawn more than once.
    """

    points: Sequence[CurvePoint]
    doubling: figures.Interval | None
    spread: float

    def __str__(self) -> str:
        if self.doubling is None:
            return "the points do not say whether more judgements would help"
        rows, gain = 2 * self.points[-1].rows, self.doubling
        return (
            f"doubling to {rows:,} rows is worth about {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] on "
            f"average over draws of rows, which differ by {self.spread:.3f}"
        )


def draw_curve(
    features: Floats, wanted: Floats, dialogue_of: Integers, held: HeldOut, held_features: AnyFloats, whole: RidgeHead,
) -> LearningCurve:  # fmt: skip
    """The curve of halves, quarters and so on of the rows, whose last point is the head of them all."""
    generator = np.random.default_rng(0)
    found: list[tuple[int, list[float], Floats]] = []
    size = len(wanted)
    while size >= LEAST_OF_CURVE or size == len(wanted):
        heads = [whole]
        if size < len(wanted):
            draws = min(DRAWS, 2 * len(wanted) // size) if size <= MOST_DRAWN else 1
            drawn = [draw_rows(generator, dialogue_of, size) for _ in range(draws)]
            heads = [fit_head(features[own], wanted[own], dialogue_of[own]) for own in drawn if np.ptp(wanted[own])]
        scores = [head.predict(held_features) for head in heads]
        if scores:
            agreed, resampled = [held.agree(each) for each in scores], [held.resample(each) for each in scores]
            found.insert(0, (size, agreed, np.array(resampled)))
        size //= 2
    points, means = [], []
    for place, (size, agreed, rounds) in enumerate(found):
        mean = _draw(generator, rounds, len(rounds))
        if len(rounds) == 1 and place:  # another draw of all rows would differ about as one of half of them does
            half = found[place - 1][2]
            mean += _draw(generator, half, 1) - half.mean(0)
        points.append(CurvePoint(size, len(agreed), figures.find_interval(float(np.mean(agreed)), mean)))
        means.append(mean)
    spread = next((float(np.std(agreed, ddof=1)) for _, agreed, _ in reversed(found) if len(agreed) > 1), math.nan)
    return LearningCurve(points, extrapolate(points, np.array(means)), spread)


def _draw(generator: np.random.Generator, rounds: Floats, count: int) -> Floats:
    """In each resample the mean of so many of the draws [draws, resamples], drawn again."""
    picked = generator.integers(0, len(rounds), (count, rounds.shape[1]))
    drawn: Floats = rounds[picked, np.arange(rounds.shape[1])].mean(0)
    return drawn


def extrapolate(points: Sequence[CurvePoint], resampled: Floats) -> figures.Interval | None:
    """What twice the rows would add, if agreement nears its limit as one of the POWERS of the rows, the best for them.

    `resampled` [points, rounds] are the points in each resample, for which another power may be the best. None for
    fewer than three points, and where the interval holds 0. Measured on the fourteen criteria of
    docs/models/criterion.md, from half the rows: .019 was foretold on average, .012 was found; of a single criterion,
    with one draw of rows, it is off by .03.
    """
    if len(points) < SIZES:
        return None
    columns = np.column_stack([[each.agreement.value for each in points], resampled])
    rise = foretell(np.array([each.rows for each in points]), columns[:, ~np.isnan(columns).any(0)])
    gain = figures.find_interval(float(rise[0]), rise[1:])
    return gain if gain.low > 0 else None


def foretell(rows: Integers, curves: Floats) -> Floats:
    """What twice the last of the rows would add to each of the curves [points, curves]."""
    missed, gains = [], []
    for power in POWERS:
        *places, twice = np.append(rows, 2 * rows[-1]).astype(np.float64) ** -power
        slope, level = np.polyfit(places, curves, 1)
        missed.append(((np.outer(places, slope) + level - curves) ** 2).sum(0))
        gains.append(slope * (twice - places[-1]))
    found: Floats = np.take_along_axis(np.array(gains), np.argmin(missed, 0)[None], 0)[0]
    return found


def draw_rows(generator: np.random.Generator, dialogue_of: Integers, size: int) -> Integers:
    """Rows of dialogues drawn at random, until there are so many."""
    order = generator.permutation(int(dialogue_of.max()) + 1)
    return np.asarray(np.argsort(order[dialogue_of], kind="stable")[:size])
