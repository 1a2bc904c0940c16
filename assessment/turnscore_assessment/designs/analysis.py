"""Analysis of filled sheets: systems' scores with intervals, every pair's difference, and raters' agreement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy

from turnscore_assessment.designs.form import AskedCriterion, DesignKey, DesignKind, OptionTable
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import CONFIDENCE, Flags, Floats, Integers, Interval, compute_spearman
from turnscore_assessment.ratings.rating_file import RatingUnit
from turnscore_assessment.ratings.reliability import Intraclass, lay_out, measure_alpha, measure_intraclass, step_up
from turnscore_assessment.ratings.scoring import correct_benjamini_hochberg, correct_holm

# The chosen option, the offered options, the weight, and the answer's number.
ChoiceRow = tuple[int, list[int], float, int]

# Factor of the sum of squared strengths. Chosen: a prior of deviation 7, which a handful of answers outweighs.
PENALTY = 0.01


@dataclass(frozen=True)
class Choices:
    """One choice per row: which of the remaining options was chosen, its weight, and its answer."""

    chosen: Integers
    offered: Flags  # One column per system.
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
    chosen, _, weights, answer_of = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Choices(np.array(chosen, dtype=np.intp), offered, np.array(weights), np.array(answer_of, dtype=np.intp))


def fit_choices(choices: Choices, penalty: float = PENALTY) -> tuple[Floats, Floats]:
    """The strengths, which sum to 0, and each answer's influence on them, a row each."""
    systems = choices.offered.shape[1]

    def lose(strengths: Floats) -> tuple[float, Floats]:
        totals = scipy.special.logsumexp(np.where(choices.offered, strengths, -np.inf), axis=1)
        loss = float(choices.weights @ (totals - strengths[choices.chosen])) + penalty * float(strengths @ strengths)
        return loss, -_gradients(choices, strengths).sum(axis=0) + 2 * penalty * strengths

    def bend(strengths: Floats) -> Floats:
        """The second derivatives of what is lost."""
        shares = _shares(choices, strengths)
        weighted = shares * choices.weights[:, None]
        return np.asarray(np.diag(weighted.sum(axis=0)) - shares.T @ weighted + 2 * penalty * np.eye(systems))

    found = scipy.optimize.minimize(lose, np.zeros(systems), jac=True, hess=bend, method="trust-exact")
    strengths = np.asarray(found.x, dtype=np.float64)
    per_answer = np.zeros((int(choices.answer_of.max()) + 1, systems))
    np.add.at(per_answer, choices.answer_of, _gradients(choices, strengths))
    return strengths, np.asarray(np.linalg.solve(bend(strengths), per_answer.T).T, dtype=np.float64)


def _shares(choices: Choices, strengths: Floats) -> Floats:
    """The probability of each option offered."""
    return np.asarray(scipy.special.softmax(np.where(choices.offered, strengths, -np.inf), axis=1))


def _gradients(choices: Choices, strengths: Floats) -> Floats:
    """The gradient of every choice's log-likelihood."""
    gradients = -_shares(choices, strengths)
    gradients[np.arange(len(gradients)), choices.chosen] += 1
    return np.asarray(gradients * choices.weights[:, None])


@dataclass(frozen=True)
class Estimates:
    """Values and the parts of their errors; a way of clustering with a single cluster makes none."""

    values: Floats
    # Error parts by raters, by dialogues, and by both together where there are several of each.
    covariances: tuple[Floats, ...]
    freedom: int

    def contrast(self, weights: Floats) -> tuple[Interval, float]:
        """A weighted sum of the values with its interval and two-sided p; both NaN where the error is unknown."""
        value = float(weights @ self.values)
        variances = [float(weights @ covariance @ weights) for covariance in self.covariances]
        if not variances or self.freedom < 1:
            return Interval(value), float("nan")
        combined = variances[0] + variances[1] - variances[2] if len(variances) == 3 else variances[0]
        error = float(np.sqrt(max(combined, *variances[:2], 0.0)))
        half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * error
        p_value = 2 * float(scipy.stats.t.sf(abs(value) / error, self.freedom)) if error else float(value == 0)
        return Interval(value, value - half, value + half), p_value


def build_estimates(values: Floats, influences: Floats, raters: Integers, dialogues: Integers) -> Estimates:
    """`influences` has a row per observation and a column per value; raters and dialogues number the observations'."""
    ways = [way for way in (raters, dialogues) if len(np.unique(way)) > 1]
    counts = [len(np.unique(way)) for way in ways]
    if len(ways) == 2:
        ways.append(np.unique(np.column_stack([raters, dialogues]), axis=0, return_inverse=True)[1].reshape(-1))
    return Estimates(values, tuple(_covariance(influences, way) for way in ways), min(counts, default=1) - 1)


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


ROUNDING = 1e-12  # Share of the largest value below which a deviation is rounding. Chosen: float64 leaves about 1e-16.


def transform_answers(
    key: DesignKey, criterion: AskedCriterion, table: OptionTable, transform: RatingUnit
) -> tuple[Floats, list[str]]:
    """A value for every answer, more is better, NaN for raters whose z-scores are undefined; and the steps' names."""
    steps: list[str] = []
    if key.design.is_choice:
        return _count_choices(key.design, table, steps), steps
    values = table.answer
    if key.design.is_magnitude:
        values = np.log((values + 1) / (table.standard + 1))
        steps.append("ln((answer + 1) / (standard + 1))")
    if criterion.direction == "negative":
        assert key.scale is not None
        values = -values if key.design.is_magnitude else key.scale.low + key.scale.high - values
        steps.append("sign turned" if key.design.is_magnitude else "reversed: low + high - answer")
    if transform == "z":
        values = _standardize(values, table)
        steps.append("z per rater and criterion, n - 1")
    return np.asarray(values), steps or ["none: raw answers"]


def _count_choices(design: DesignKind, table: OptionTable, steps: list[str]) -> Floats:
    """Counting scores, whose mean over a system's appearances is (best - worst) / shown, and the like."""
    if design is DesignKind.BEST_WORST:
        steps.append("counts: best 1, worst -1, others 0")
        values = 2 - table.answer
    elif design is DesignKind.PAIRWISE:
        steps.append("counts: better 1, tie 1/2, other 0")
        values = 2 - table.answer
    else:
        steps.append("ranks: best 1 to worst -1, evenly spaced")
        shown = np.bincount(table.question)[table.question]
        values = 1 - 2 * (table.answer - 1) / np.maximum(shown - 1, 1)
    return np.asarray(values)


def _standardize(values: Floats, table: OptionTable) -> Floats:
    counts = np.bincount(table.rater)
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = values - (np.bincount(table.rater, values) / counts)[table.rater]
        deviations = np.sqrt(np.bincount(table.rater, distances**2) / (counts - 1))[table.rater]
        is_spread = deviations > ROUNDING * np.abs(values).max()
        return np.where(is_spread, distances / deviations, np.nan)


LEAST_ITEMS = 3  # Fewest items in both halves for a correlation: of two it is always 1 or -1. Specified.


@dataclass(frozen=True)
class RaterAgreement:
    """Agreement of the values that the scores are made of; None where too few raters judged the same items."""

    alpha_interval: float | None  # Krippendorff's alpha, interval scale.
    # ICC with k, the raters of an item: compare designs by the figures of one rater, unless k is the same.
    intraclass: Intraclass | None
    # Mean Spearman correlation of items' means in two random halves of the raters, stepped up to all of them.
    split_half: float | None


def measure_rater_agreement(values: Floats, table: OptionTable, *, splits: int = 100) -> RaterAgreement:
    """The agreement about items; a rater's several answers about one item count by their mean.

    `splits`: random splits of the raters in halves, as Kiritchenko & Mohammad (2017) make.
    """
    kept = np.isfinite(values)
    try:
        ratings = lay_out(table.item[kept], table.rater[kept], values[kept])
        alpha = measure_alpha(ratings, "interval")
        intraclass = measure_intraclass(ratings)
    except AssessmentError:
        return RaterAgreement(None, None, None)
    return RaterAgreement(None if np.isnan(alpha) else alpha, intraclass, _split_half(ratings, splits))


def _split_half(ratings: Floats, splits: int) -> float | None:
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
        found.append(compute_spearman(*means))
    kept = [each for each in found if not np.isnan(each)]
    return step_up(float(np.mean(kept)), 2) if kept else None


@dataclass(frozen=True)
class ScoredSystem:
    """One system's score by one method."""

    system: str
    shown: int
    score: Interval


@dataclass(frozen=True)
class SystemPair:
    """How two systems differ, the first one scored higher."""

    first: str
    second: str
    difference: Interval
    p_value: float
    p_holm: float
    p_benjamini_hochberg: float


@dataclass(frozen=True)
class Scoring:
    """One method of scoring answers, best system first."""

    method: str
    transforms: Sequence[str]
    systems: Sequence[ScoredSystem]
    pairs: Sequence[SystemPair]


@dataclass(frozen=True, kw_only=True)
class CriterionAnalysis:
    """The analysis of one criterion's answers."""

    criterion: str
    answered: int
    unanswered: int
    raters: int
    dialogues: int
    left_out: Sequence[str]
    scorings: Sequence[Scoring]
    agreement: RaterAgreement


# Most answered options times systems. Chosen: a choice takes 20 bytes per system, an option of a tuple two choices.
MOST_CHOICE_CELLS = 20_000_000

ERRORS = (
    "95 % intervals allow for raters and dialogues: two-way cluster-robust covariance (Cameron, Gelbach, Miller 2011); "
    "t with one degree of freedom less than the fewer of both; Holm and Benjamini-Hochberg over all pairs of systems"
)


def analyse_criterion(
    key: DesignKey, criterion: AskedCriterion, table: OptionTable, transform: RatingUnit, *, splits: int = 100
) -> CriterionAnalysis:
    """Scores by the mean, and for choices also by the model of choices."""
    if not len(table.answer):
        raise TooFewError(f"{criterion.name}: no question is answered")
    values, steps = transform_answers(key, criterion, table, transform)
    kept = np.isfinite(values)
    if not kept.any():
        raise TooFewError(f"{criterion.name}: every rater gave one answer to everything")
    constant = len(np.unique(table.rater[~kept]))
    means = average_by_system(values[kept], table.system[kept], len(table.systems))
    scorings = [_collect("mean", steps, build_estimates(*means, table.rater[kept], table.dialogue[kept]), table)]
    left_out = [f"{constant} raters who gave one answer to everything"] if constant else []
    if key.design.is_choice and len(table.answer) * len(table.systems) <= MOST_CHOICE_CELLS:
        scorings.append(_score_choices(key, table))
    elif key.design.is_choice:
        left_out.append("the model of choices: there are too many answers for it; counts stand")
    return CriterionAnalysis(
        criterion=criterion.name,
        answered=len(np.unique(table.question)),
        unanswered=table.unanswered,
        raters=len(np.unique(table.rater)),
        dialogues=len(np.unique(table.dialogue)),
        left_out=left_out,
        scorings=scorings,
        agreement=measure_rater_agreement(values, table, splits=splits),
    )


def _score_choices(key: DesignKey, table: OptionTable) -> Scoring:
    split = split_ranking if key.design is DesignKind.RANKING else split_pairs
    order = np.argsort(table.question, kind="stable")
    starts = np.flatnonzero(np.diff(table.question[order], prepend=-1))
    rows = [
        row
        for answer, places in enumerate(np.split(order, starts[1:]))
        for row in split(table.answer[places].tolist(), table.system[places].tolist(), answer)
    ]
    strengths, influences = fit_choices(build_choices(rows, len(table.systems)))
    first = order[starts]
    estimates = build_estimates(strengths, influences, table.rater[first], table.dialogue[first])
    name = "Plackett-Luce" if key.design is DesignKind.RANKING else "Bradley-Terry"
    steps = [f"penalized maximum likelihood, {PENALTY:g} times the sum of squares", "strengths sum to 0"]
    if key.design is DesignKind.BEST_WORST:
        steps.insert(0, "every pair that best and worst imply")
    return _collect(name, steps, estimates, table)


def _collect(method: str, steps: Sequence[str], estimates: Estimates, table: OptionTable) -> Scoring:
    """The answered systems, best first, and all pairs of these."""
    shown = np.bincount(table.system, minlength=len(table.systems))
    order = [int(place) for place in np.argsort(-estimates.values, kind="stable") if shown[place]]
    unit = np.eye(len(table.systems))
    usable = replace(estimates, values=np.nan_to_num(estimates.values))
    pairs = [(first, second, *usable.contrast(unit[first] - unit[second])) for first, second in combinations(order, 2)]
    p_values = [1.0 if np.isnan(p_value) else p_value for *_, p_value in pairs]
    holm, hochberg = correct_holm(p_values).tolist(), correct_benjamini_hochberg(p_values).tolist()
    named = table.systems
    return Scoring(
        method,
        list(steps),
        [ScoredSystem(named[place], int(shown[place]), usable.contrast(unit[place])[0]) for place in order],
        [
            SystemPair(named[first], named[second], difference, p_value, holm[number], hochberg[number])
            for number, (first, second, difference, p_value) in enumerate(pairs)
        ],
    )
