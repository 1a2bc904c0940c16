"""Analysis of filled sheets: systems' scores with intervals, every pair's difference, and raters' agreement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from turnscore_assessment.designs.answers import OptionTable
from turnscore_assessment.designs.estimates import (
    PENALTY,
    Estimates,
    average_by_system,
    build_choices,
    build_estimates,
    fit_choices,
    split_pairs,
    split_ranking,
)
from turnscore_assessment.designs.form import AskedCriterion, DesignKey, DesignKind
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval, compute_spearman
from turnscore_assessment.ratings.rating_table import RatingUnit
from turnscore_assessment.ratings.reliability_coefficients import (
    Intraclass,
    measure_alpha,
    measure_intraclass,
    step_up,
)
from turnscore_assessment.ratings.scoring import correct_benjamini_hochberg, correct_holm

ROUNDING = 1e-12
"""Share of the largest value below which a deviation is rounding. Chosen: float64 leaves about 1e-16."""


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
    if transform is RatingUnit.Z:
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


SPLITS = 100
"""Random splits of the raters in halves, as Kiritchenko & Mohammad (2017) make."""
LEAST_ITEMS = 3
"""Fewest items in both halves for a correlation: of two it is always 1 or -1. Specified."""
MOST_CELLS = 20_000_000
"""Most cells of the table of items by raters. Chosen: 160 MB, and more than any study has."""


@dataclass(frozen=True, kw_only=True)
class RaterAgreement:
    """Agreement of the values that the scores are made of; None where too few raters judged the same items."""

    alpha_interval: float | None
    """Krippendorff's alpha, interval scale."""
    intraclass: Intraclass | None
    """ICC with k, the raters of an item: compare designs by the figures of one rater, unless k is the same."""
    split_half: float | None
    """Mean Spearman correlation of items' means in two random halves of the raters, stepped up to all of them."""


def measure_rater_agreement(values: Floats, table: OptionTable, *, splits: int = SPLITS) -> RaterAgreement:
    """The agreement about items; a rater's several answers about one item count by their mean."""
    nothing = RaterAgreement(alpha_interval=None, intraclass=None, split_half=None)
    ratings = _lay_out(values, table)
    if ratings is None:
        return nothing
    try:
        alpha = measure_alpha(ratings, "interval")
        intraclass = measure_intraclass(ratings)
    except TooFewError:
        return nothing
    return RaterAgreement(
        alpha_interval=None if np.isnan(alpha) else alpha,
        intraclass=intraclass,
        split_half=_split_half(ratings, splits),
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


@dataclass(frozen=True, kw_only=True)
class ScoredSystem:
    """One system's score by one method."""

    system: str
    shown: int
    score: Interval


@dataclass(frozen=True, kw_only=True)
class SystemPair:
    """How two systems differ, the first one scored higher."""

    first: str
    second: str
    difference: Interval
    p_value: float
    p_holm: float
    p_benjamini_hochberg: float


@dataclass(frozen=True, kw_only=True)
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
    """How many questions have an answer."""
    unanswered: int
    raters: int
    dialogues: int
    left_out: Sequence[str]
    scorings: Sequence[Scoring]
    agreement: RaterAgreement


@dataclass(frozen=True, kw_only=True)
class DesignAnalysis:
    study: str
    design: DesignKind
    errors: str
    criteria: Sequence[CriterionAnalysis]


MOST_CHOICE_CELLS = 20_000_000
"""Most answered options times systems. Chosen: a choice takes 20 bytes per system, an option of a tuple two choices."""

ERRORS = (
    "95 % intervals allow for raters and dialogues: two-way cluster-robust covariance (Cameron, Gelbach, Miller 2011); "
    "t with one degree of freedom less than the fewer of both; Holm and Benjamini-Hochberg over all pairs of systems"
)


def analyse_design(
    key: DesignKey, tables: Mapping[str, OptionTable], transform: RatingUnit = RatingUnit.Z, *, splits: int = 100
) -> DesignAnalysis:
    """The analysis of every criterion; TooFewError where one has no answers."""
    return DesignAnalysis(
        study=key.study,
        design=key.design,
        errors=ERRORS,
        criteria=[
            analyse_criterion(key, criterion, tables[criterion.name], transform, splits=splits)
            for criterion in key.criteria
        ],
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
    scorings = [_score_means(values, kept, table, steps)]
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


def _score_means(values: Floats, kept: np.ndarray, table: OptionTable, steps: Sequence[str]) -> Scoring:
    systems = len(table.systems)
    means, influences = average_by_system(values[kept], table.system[kept], systems)
    estimates = build_estimates(means, influences, table.rater[kept], table.dialogue[kept])
    return _collect("mean", steps, estimates, table)


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
    usable = Estimates(
        values=np.nan_to_num(estimates.values), covariances=estimates.covariances, freedom=estimates.freedom
    )
    pairs = [(first, second, *usable.contrast(unit[first] - unit[second])) for first, second in combinations(order, 2)]
    p_values = [1.0 if np.isnan(p_value) else p_value for *_, p_value in pairs]
    holm, hochberg = correct_holm(p_values).tolist(), correct_benjamini_hochberg(p_values).tolist()
    return Scoring(
        method=method,
        transforms=list(steps),
        systems=[
            ScoredSystem(system=table.systems[place], shown=int(shown[place]), score=usable.contrast(unit[place])[0])
            for place in order
        ],
        pairs=[
            SystemPair(
                first=table.systems[first],
                second=table.systems[second],
                difference=difference,
                p_value=p_value,
                p_holm=holm[number],
                p_benjamini_hochberg=hochberg[number],
            )
            for number, (first, second, difference, p_value) in enumerate(pairs)
        ],
    )
