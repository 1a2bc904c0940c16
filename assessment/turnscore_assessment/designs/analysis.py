"""Analysis of filled sheets: systems' scores with intervals, every pair's difference, and raters' agreement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from turnscore_assessment.designs.agreement import Agreement, measure_agreement
from turnscore_assessment.designs.answer_file import OptionTable
from turnscore_assessment.designs.choice_models import PENALTY, build_choices, fit_choices, split_pairs, split_ranking
from turnscore_assessment.designs.clustering import Estimates, average_by_system, build_estimates
from turnscore_assessment.designs.form import AskedCriterion, DesignKey, DesignKind
from turnscore_assessment.designs.transforms import Transform, transform_answers
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import Floats, Interval
from turnscore_assessment.scoring.corrections import correct_benjamini_hochberg, correct_holm


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
    agreement: Agreement


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
    key: DesignKey, tables: Mapping[str, OptionTable], transform: Transform = Transform.Z, *, splits: int = 100
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
    key: DesignKey, criterion: AskedCriterion, table: OptionTable, transform: Transform, *, splits: int = 100
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
        agreement=measure_agreement(values, table, splits=splits),
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
