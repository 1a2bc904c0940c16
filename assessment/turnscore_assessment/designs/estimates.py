"""Strengths of systems from choices, and estimates whose errors allow for raters and dialogues both.

Bradley-Terry and Plackett-Luce are one model: of the options left, one is chosen with a probability proportional to
exp(strength) (Bradley & Terry 1952; Plackett 1975; Luce 1959). A small ridge penalty keeps a system that always wins
finite, as `alpha` does in choix.

Answers of one rater, or about one dialogue, correlate. Two-way cluster-robust covariance (Cameron, Gelbach & Miller
2011): that of raters plus that of dialogues minus that of their meetings, each with its small-sample factor
G / (G - 1); t with one degree less than the fewer of both. Computes on influences: how much each observation moves each
estimate, exact for means and first-order for maximum likelihood.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from turnscore_assessment.figures import CONFIDENCE, Floats, Integers, Interval

ChoiceRow = tuple[int, list[int], float, int]
"""The chosen option, the offered options, the weight, and the answer's number."""

PENALTY = 0.01
"""Factor of the sum of squared strengths. Chosen: a prior of deviation 7, which a handful of answers outweighs."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """One choice per row: which of the remaining options was chosen, its weight, and its answer."""

    chosen: Integers
    offered: NDArray[np.bool_]
    """One column per system."""
    weights: Floats
    answer_of: Integers


def split_ranking(ranks: Sequence[float], systems: Sequence[int], answer: int) -> list[ChoiceRow]:
    """A full ranking as choices: the best of all, the best of the rest, and so on (Plackett-Luce)."""
    order = [systems[place] for place in np.argsort(ranks, kind="stable")]
    return [(order[place], order[place:], 1.0, answer) for place in range(len(order) - 1)]


def split_pairs(ranks: Sequence[float], systems: Sequence[int], answer: int) -> list[ChoiceRow]:
    """Every pair that an answer orders as a choice (Bradley-Terry); a tie of a pair is half a choice of either."""
    found = []
    for i, left in enumerate(systems):
        for j in range(i + 1, len(systems)):
            right = systems[j]
            if ranks[i] != ranks[j]:
                found.append((left if ranks[i] < ranks[j] else right, [left, right], 1.0, answer))
            elif len(systems) == 2:
                found += [(left, [left, right], 0.5, answer), (right, [left, right], 0.5, answer)]
    return found


def build_choices(rows: Sequence[ChoiceRow], systems: int) -> Choices:
    """The choices in the rows of `split_ranking` or `split_pairs`."""
    offered = np.zeros((len(rows), systems), dtype=bool)
    for place, (_, options, _, _) in enumerate(rows):
        offered[place, options] = True
    return Choices(
        chosen=np.array([row[0] for row in rows], dtype=np.intp),
        offered=offered,
        weights=np.array([row[2] for row in rows]),
        answer_of=np.array([row[3] for row in rows], dtype=np.intp),
    )


def fit_choices(choices: Choices, penalty: float = PENALTY) -> tuple[Floats, Floats]:
    """The strengths, which sum to 0, and each answer's influence on them, a row each."""
    systems = choices.offered.shape[1]

    def lose(strengths: Floats) -> tuple[float, Floats]:
        logits = np.where(choices.offered, strengths, -np.inf)
        highest = logits.max(axis=1, keepdims=True)
        totals = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
        loss = float(choices.weights @ (totals - strengths[choices.chosen])) + penalty * float(strengths @ strengths)
        return loss, -_gradients(choices, strengths).sum(axis=0) + 2 * penalty * strengths

    def bend(strengths: Floats) -> Floats:
        return _bend(choices, strengths) + 2 * penalty * np.eye(systems)

    found = optimize.minimize(lose, np.zeros(systems), jac=True, hess=bend, method="trust-exact")
    strengths = np.asarray(found.x, dtype=np.float64)
    per_answer = np.zeros((int(choices.answer_of.max()) + 1, systems))
    np.add.at(per_answer, choices.answer_of, _gradients(choices, strengths))
    return strengths, np.asarray(np.linalg.solve(bend(strengths), per_answer.T).T, dtype=np.float64)


def _shares(choices: Choices, strengths: Floats) -> Floats:
    """The probability of each option offered."""
    logits = np.where(choices.offered, strengths, -np.inf)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _gradients(choices: Choices, strengths: Floats) -> Floats:
    """The gradient of every choice's log-likelihood."""
    gradients = -_shares(choices, strengths)
    gradients[np.arange(len(gradients)), choices.chosen] += 1
    return np.asarray(gradients * choices.weights[:, None])


def _bend(choices: Choices, strengths: Floats) -> Floats:
    """The second derivatives of the negative log-likelihood."""
    shares = _shares(choices, strengths)
    weighted = shares * choices.weights[:, None]
    return np.asarray(np.diag(weighted.sum(axis=0)) - shares.T @ weighted)


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Values and the parts of their errors; a way of clustering with a single cluster makes none."""

    values: Floats
    covariances: tuple[Floats, ...]
    """Error parts by raters, by dialogues, and by both together where there are several of each."""
    freedom: int

    def contrast(self, weights: Floats) -> tuple[Interval, float]:
        """A weighted sum of the values with its interval and two-sided p; both NaN where the error is unknown."""
        value = float(weights @ self.values)
        variances = [float(weights @ covariance @ weights) for covariance in self.covariances]
        if not variances or self.freedom < 1:
            return Interval(value), float("nan")
        combined = variances[0] + variances[1] - variances[2] if len(variances) == 3 else variances[0]
        error = float(np.sqrt(max(combined, *variances[:2], 0.0)))
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * error
        p_value = 2 * float(stats.t.sf(abs(value) / error, self.freedom)) if error else float(value == 0)
        return Interval(value, value - half, value + half), p_value


def build_estimates(values: Floats, influences: Floats, raters: Integers, dialogues: Integers) -> Estimates:
    """`influences` has a row per observation and a column per value; raters and dialogues number the observations'."""
    ways = [way for way in (raters, dialogues) if len(np.unique(way)) > 1]
    counts = [len(np.unique(way)) for way in ways]
    if len(ways) == 2:
        ways.append(np.unique(np.column_stack([raters, dialogues]), axis=0, return_inverse=True)[1].reshape(-1))
    return Estimates(
        values=values,
        covariances=tuple(_covariance(influences, way) for way in ways),
        freedom=min(counts, default=1) - 1,
    )


def _covariance(influences: Floats, way: Integers) -> Floats:
    numbers = np.unique(way, return_inverse=True)[1].reshape(-1)
    groups = int(numbers.max()) + 1
    sums = np.zeros((groups, influences.shape[1]))
    np.add.at(sums, numbers, influences)
    return np.asarray(sums.T @ sums * (groups / (groups - 1)))


def average_by_system(values: Floats, systems: Integers, count: int) -> tuple[Floats, Floats]:
    """Each system's mean, NaN for one without observations, and the influences on the means."""
    shown = np.bincount(systems, minlength=count)
    with np.errstate(invalid="ignore"):
        means = np.bincount(systems, values, minlength=count) / shown
    influences = np.zeros((len(values), count))
    influences[np.arange(len(values)), systems] = (values - means[systems]) / shown[systems]
    return means, influences
