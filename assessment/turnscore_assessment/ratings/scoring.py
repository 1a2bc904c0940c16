"""Of a rating table: quality control, system scores with intervals, and corrected tests of every pair of systems."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import (
    LEAST_DIALOGUES,
    Flags,
    Floats,
    Integers,
    Interval,
    bound_by_fisher,
    compute_kendall,
    compute_pearson,
    compute_spearman,
    correlate_rows,
    find_interval,
)
from turnscore_assessment.ratings import rating_file


class ControlVerdict(StrEnum):
    """Why a worker's ratings count or do not."""

    PASSED = "passed"
    UNCONTROLLED = "the study has no degraded system"
    NOT_LOWER = "rates the degraded system no lower"
    CONSTANT = "gives one rating to everything"
    NOT_YET = "has not rated a degraded and an ordinary system"


@dataclass(frozen=True, kw_only=True)
class ControlledWorker:
    """One worker's outcome; `p` is that of the one-sided test, NaN where none was made, as a mean of no ratings is."""

    worker: str
    verdict: ControlVerdict
    p: float
    degraded_ratings: int
    ordinary_ratings: int
    # Mean ratings in the criteria of the quality control, as given.
    degraded_mean: float
    ordinary_mean: float

    @property
    def passes(self) -> bool:
        return self.verdict in (ControlVerdict.PASSED, ControlVerdict.UNCONTROLLED)


def control_quality(table: rating_file.RatingTable) -> list[ControlledWorker]:
    """Every worker's outcome, by number: passes if p < `quality_control_p` that degraded ratings are lower.

    The test is Mann-Whitney's U, corrected for ties and continuity (exact for few ratings without ties), over the
    criteria that the study chose and all of a worker's HITs. In a study without a degraded system everybody passes.
    """
    is_controlled = bool(table.is_degraded.any()) and table.controlling.size > 0
    is_constant = rating_file.measure_workers(table)[1] == 0
    found = []
    for number, rows in enumerate(rating_file.group_rows(table.worker_of, len(table.workers))):
        chosen = table.ratings[rows][:, table.controlling]
        is_degraded = table.is_degraded[rows]
        degraded, ordinary = chosen[is_degraded].ravel(), chosen[~is_degraded].ravel()
        p = float("nan")
        if not is_controlled:
            verdict = ControlVerdict.UNCONTROLLED
        elif is_constant[number]:
            verdict = ControlVerdict.CONSTANT
        elif not degraded.size or not ordinary.size:
            verdict = ControlVerdict.NOT_YET
        else:
            p = float(scipy.stats.mannwhitneyu(degraded, ordinary, alternative="less", method="auto").pvalue)
            verdict = ControlVerdict.PASSED if p < table.description.quality_control_p else ControlVerdict.NOT_LOWER
        found.append(
            ControlledWorker(
                worker=table.workers[number],
                verdict=verdict,
                p=p,
                degraded_ratings=degraded.size,
                ordinary_ratings=ordinary.size,
                degraded_mean=float(degraded.mean()) if degraded.size else math.nan,
                ordinary_mean=float(ordinary.mean()) if ordinary.size else math.nan,
            )
        )
    return found


def correct_holm(p_values: ArrayLike) -> Floats:
    """Holm (1979): keeps the share of families with any false alarm below the level of comparison. In [0, 1]."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)) if len(given) else given
    restored = np.empty_like(stepped)
    restored[order] = np.minimum(stepped, 1.0)
    return restored


def correct_benjamini_hochberg(p_values: Sequence[float]) -> Floats:
    """Benjamini & Hochberg (1995): keeps the share of false differences among those found below the level."""
    return np.asarray(scipy.stats.false_discovery_control(p_values) if len(p_values) else p_values, dtype=np.float64)


PairOutcome = Literal["better", "worse", "none"]
THRESHOLDS = (0.1, 0.05)  # Those that the published figure and text use.
# Digits that are compared. Chosen: float64 keeps sixteen, of which a mean over criteria loses one or two.
TIE_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class ComparedPair:
    """Two systems, the first one with the higher mean; p but `p_workers` is of Mann-Whitney's U on dialogues' means."""

    first: str
    second: str
    difference: Interval
    p_workers: float  # Two-sided, of the resampled workers that the difference's interval is of: they agree.
    # One-sided: the first system's dialogues are rated higher. As published: neither corrected nor clustered.
    p_better: float
    p_worse: float
    p_two_sided: float
    p_holm: float  # Two-sided, corrected so that one false difference among all pairs is unlikely.
    p_benjamini_hochberg: float  # Two-sided, corrected so that few of the differences found are false.
    # What the published test says of the first system at each of THRESHOLDS, as `p<0.05`.
    outcomes: Mapping[str, PairOutcome]


def compare_pairs(
    values: Mapping[str, Floats], order: Sequence[str], differences: Mapping[tuple[str, str], tuple[Interval, float]]
) -> list[ComparedPair]:
    """Every pair of systems; `values`: one number per dialogue; `order`: best first; `differences`: its pairs and p."""
    pairs = list(combinations(order, 2))
    tests = {
        kind: [compare_ranks(values[first], values[second], kind) for first, second in pairs]
        for kind in ("greater", "less", "two-sided")
    }
    holm, hochberg = correct_holm(tests["two-sided"]), correct_benjamini_hochberg(tests["two-sided"])
    return [
        ComparedPair(
            first=pair[0],
            second=pair[1],
            difference=differences[pair][0],
            p_workers=differences[pair][1],
            p_better=tests["greater"][number],
            p_worse=tests["less"][number],
            p_two_sided=tests["two-sided"][number],
            p_holm=float(holm[number]),
            p_benjamini_hochberg=float(hochberg[number]),
            outcomes={
                f"p<{each:g}": _conclude(tests["greater"][number], tests["less"][number], each) for each in THRESHOLDS
            },
        )
        for number, pair in enumerate(pairs)
    ]


def _conclude(p_better: float, p_worse: float, threshold: float) -> PairOutcome:
    if p_better < threshold:
        return "better"
    return "worse" if p_worse < threshold else "none"


def compare_ranks(left: Floats, right: Floats, alternative: str) -> float:
    """Mann-Whitney's p. Values that differ by less than 1e-12 of the largest are ties.

    Means of the same ratings in another order differ by rounding, and p then moved by up to 9e-4.
    """
    largest = float(max(np.abs(left).max(), np.abs(right).max()))
    decimals = TIE_DIGITS - math.ceil(math.log10(largest)) if largest else 0
    rounded = np.round(left, decimals), np.round(right, decimals)
    return float(scipy.stats.mannwhitneyu(*rounded, alternative=alternative, method="auto").pvalue)


LEAST_SYSTEMS = 3  # With two systems, a correlation over systems is always 1 or -1. Specified.
LEAST_WORKERS = LEAST_DIALOGUES  # Fewest workers for an interval, for the same reason.
DRAWS_AT_ONCE = 50  # Resamples that are computed together. Chosen: bounds the memory to fifty tables of scores.


def check_pair(a: str, b: str, systems: Sequence[str]) -> None:
    """Raises AssessmentError where they are not two of a study's systems."""
    unknown = [name for name in (a, b) if name not in systems]
    if unknown or a == b:
        reason = f"{unknown[0]!r} is no system" if unknown else "the two systems are the same"
        raise AssessmentError(f"systems: {reason}; the study has {', '.join(systems)}")


def choose_column(table: rating_file.RatingTable, values: Floats, criterion: str) -> Floats:
    """A criterion's values, or each row's mean over criteria. AssessmentError for one that the study has not."""
    names = table.description.names
    if criterion not in (rating_file.OVERALL, *names):
        raise AssessmentError(
            f"criterion: {criterion!r} is none of the study's: {rating_file.OVERALL}, {', '.join(names)}"
        )
    return np.asarray(values.mean(axis=1) if criterion == rating_file.OVERALL else values[:, names.index(criterion)])


@dataclass(frozen=True)
class SystemSums:
    """Sums of one kind of value: all that resampling workers needs."""

    values: Floats  # By worker, system, and criterion; the last column is the mean over criteria.
    dialogues: Floats  # By worker and system.

    def average(self, weights: Floats) -> Floats:
        """Means by (row of weights,) system and column, each worker counted by its weight; NaN for none."""
        counts = weights @ self.dialogues
        sums = np.tensordot(weights, self.values, axes=(-1, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums / counts[..., None])

    @property
    def everyone(self) -> Floats:
        """The weights that count each worker once."""
        return np.ones(len(self.dialogues))


@dataclass(frozen=True)
class SystemScore:
    system: str
    dialogues: int
    ratings: int  # Dialogues times criteria: n in the published tables.
    scores: Mapping[str, Interval]  # Standardized, overall first, then by criterion.
    raw: Mapping[str, Interval]  # Reversed but not standardized.


def choose_rows(table: rating_file.RatingTable, passing: Flags) -> Flags:
    """The rows that systems are scored by: ordinary systems, workers who count. TooFewError where there are none."""
    chosen = np.asarray(passing[table.worker_of] & ~table.is_degraded)
    if not chosen.any():
        raise TooFewError("no worker passes the quality control, so no system can be scored")
    return chosen


def sum_values(
    table: rating_file.RatingTable, values: Floats, chosen: Flags, raters: Integers | None = None
) -> SystemSums:
    """The sums of values by row over the chosen rows; of the workers `raters`, or of those with such a row."""
    workers, systems = len(table.workers), len(table.systems)
    place = table.worker_of[chosen] * systems + table.system_of[chosen]
    columns = np.column_stack([values[chosen], values[chosen].mean(axis=1)])
    size = workers * systems
    sums = np.stack([np.bincount(place, column, minlength=size) for column in columns.T], axis=-1).astype(np.float64)
    counts = np.bincount(place, minlength=size).astype(np.float64)
    kept = np.unique(table.worker_of[chosen]) if raters is None else raters
    return SystemSums(sums.reshape(workers, systems, -1)[kept], counts.reshape(workers, systems)[kept])


@dataclass(frozen=True)
class JudgedStudy:
    """A study's table, and which of its workers and rows count."""

    ratings: rating_file.RatingFile
    table: rating_file.RatingTable
    workers: Sequence[ControlledWorker]
    passing: Flags  # By worker.
    chosen: Flags  # By row: of workers who pass, about ordinary systems.
    z: Floats  # Standardized, by row and criterion.

    @property
    def name(self) -> str:
        return self.ratings.description.study

    @property
    def columns(self) -> list[str]:
        """The criteria, then `overall`."""
        return [*self.ratings.description.names, rating_file.OVERALL]

    @property
    def raters(self) -> Integers:
        """The numbers of the workers who count."""
        return np.unique(self.table.worker_of[self.chosen])

    @property
    def means(self) -> Floats:
        """Each row's mean z over criteria."""
        return np.asarray(self.z.mean(axis=1))

    @cached_property
    def sums(self) -> SystemSums:
        """Of standardized ratings that count."""
        return sum_values(self.table, self.z, self.chosen)

    @cached_property
    def raw_sums(self) -> SystemSums:
        """Of ratings that count as they are, negative criteria reversed."""
        return sum_values(self.table, self.table.ratings, self.chosen)


def judge_study(ratings: rating_file.RatingFile, *, needs_passing: bool = True) -> JudgedStudy:
    """Judges the workers; raises TooFewError where none passes, if one is needed."""
    table = rating_file.build_table(ratings)
    workers = control_quality(table)
    passing = np.array([worker.passes for worker in workers], dtype=np.bool_)
    chosen = choose_rows(table, passing) if needs_passing or passing.any() else np.zeros_like(table.is_degraded)
    return JudgedStudy(ratings, table, workers, passing, chosen, rating_file.standardize(table))


def resample_systems(sums: SystemSums, rounds: int, seed: int) -> Floats:
    """Means by round, system and column over as many workers as there are, drawn with replacement.

    No round where there are fewer than LEAST_WORKERS. The same seed draws the same workers for every kind of value.
    """
    workers = len(sums.dialogues)
    if workers < LEAST_WORKERS:
        return np.empty((0, *sums.values.shape[1:]))
    generator = np.random.default_rng(seed)
    found = []
    for start in range(0, rounds, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, rounds - start)
        draws = generator.multinomial(workers, np.full(workers, 1 / workers), size=size).astype(np.float64)
        found.append(sums.average(draws))
    return np.concatenate(found) if found else np.empty((0, *sums.values.shape[1:]))


def score_systems(study: JudgedStudy, draws: Sequence[Floats]) -> list[SystemScore]:
    """Every system's scores, best first; `draws` are the resamples of the standardized and of the raw means."""
    names = study.columns
    means = [sums.average(sums.everyone) for sums in (study.sums, study.raw_sums)]
    counts = study.sums.dialogues.sum(axis=0).astype(int).tolist()
    workers = len(study.sums.dialogues)

    def gather(kind: int, system: int) -> dict[str, Interval]:
        return {
            names[column]: find_interval(float(means[kind][system, column]), draws[kind][:, system, column], workers)
            for column in (-1, *range(len(names) - 1))
        }

    found = [
        SystemScore(name, counts[number], counts[number] * (len(names) - 1), gather(0, number), gather(1, number))
        for number, name in enumerate(study.table.systems)
        if counts[number]
    ]
    return sorted(found, key=lambda score: -score.scores[rating_file.OVERALL].value)


@dataclass(frozen=True)
class SystemCorrelation:
    """How two columns of numbers, one per system, correlate; intervals from resampling the workers behind them."""

    pearson: Interval
    fisher: Interval  # Pearson's with Fisher's interval, as if other systems had been drawn.
    spearman: Interval
    kendall: float


def correlate_systems(left: Floats, right: Floats, left_draws: Floats, right_draws: Floats) -> SystemCorrelation:
    """Over the systems that both columns have; `left_draws` and `right_draws` are resamples of them, a row each."""
    known = ~np.isnan(left) & ~np.isnan(right)
    left, right, draws = left[known], right[known], [each[:, known] for each in (left_draws, right_draws)]
    if len(left) < LEAST_SYSTEMS:
        nothing = Interval(math.nan)
        return SystemCorrelation(nothing, nothing, nothing, math.nan)
    ranks = [scipy.stats.rankdata(each, axis=1) if len(each) else each for each in draws]
    r, rho = compute_pearson(left, right), compute_spearman(left, right)
    pearson, spearman = find_interval(r, correlate_rows(*draws)), find_interval(rho, correlate_rows(*ranks))
    return SystemCorrelation(pearson, bound_by_fisher(r, len(left)), spearman, compute_kendall(left, right))
