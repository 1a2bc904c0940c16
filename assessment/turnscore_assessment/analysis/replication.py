"""Replication: two studies' correlations over systems, their conclusions, and a curve over fewer workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import CONFIDENCE, Floats, Interval, compute_pearson
from turnscore_assessment.ratings import scoring
from turnscore_assessment.ratings.rating_file import OVERALL, RatingFile
from turnscore_assessment.ratings.scoring import SystemCorrelation, SystemSums
from turnscore_assessment.rendering import Page, Section, Table, draw_lines

Z, RAW = "z", "raw"


class ScoredStudy:
    """The sums of its workers' ratings, standardized and raw, and the ratings of each system's dialogues."""

    def __init__(self, ratings: RatingFile) -> None:
        """TooFewError where no worker passes."""
        study = scoring.judge_study(ratings)
        self.name, self.systems, self.columns = study.name, study.table.systems, study.columns
        self.sums = {Z: study.sums, RAW: study.raw_sums}  # By kind, over workers who pass.
        passes, is_ordinary = study.passing[study.table.worker_of], ~study.table.is_degraded
        rows = {"passed": passes & is_ordinary, "failed": ~passes & is_ordinary, "all": is_ordinary}
        # Standardized, over `passed`, `failed` and `all` workers; a group without workers is left out.
        self.groups = {
            name: scoring.sum_values(study.table, study.z, each) for name, each in rows.items() if each.any()
        }
        of_system = {
            name: study.means[study.chosen & (study.table.system_of == number)]
            for number, name in enumerate(self.systems)
        }
        # For every ordered pair: the one-sided p that the first system's dialogues are rated higher.
        self.p_greater = {
            (first, second): scoring.compare_ranks(of_system[first], of_system[second], "greater")
            for first, second in permutations(self.systems, 2)
            if len(of_system[first]) and len(of_system[second])
        }

    @property
    def workers(self) -> int:
        return len(self.sums[Z].dialogues)


Studies = tuple[ScoredStudy, ScoredStudy]
FEWEST_WORKERS = 5  # First number of workers of the curve; each next one is double.


@dataclass(frozen=True)
class SameConclusions:
    """The verdicts of a significance test on each pair of systems in both studies: better, worse, or nothing."""

    threshold: float
    pairs: int
    same: int
    opposite: int  # Pairs of which one study says better and the other worse.
    share: float


@dataclass(frozen=True)
class ReplicationPoint:
    """Pearson's r of so many workers of the first study with all of the second."""

    workers: int
    median: float
    low: float  # The fifth percentile: a study so small is worse one time in twenty.


@dataclass(frozen=True, kw_only=True)
class Replication:
    """All figures of two studies."""

    names: tuple[str, str]
    workers: tuple[int, int]
    systems: Sequence[str]
    columns: Mapping[str, Mapping[str, SystemCorrelation]]  # By kind, `z` or `raw`, and column, overall first.
    conclusions: Sequence[SameConclusions]
    curve: Sequence[ReplicationPoint]
    # Pearson's r of the overall z-scores of workers who passed, of those who failed, and of all.
    filters: Mapping[str, float]
    left_out: Sequence[str]
    rounds: int
    seed: int


def compare_studies(first: RatingFile, second: RatingFile, rounds: int, seed: int) -> Replication:
    """Compares two studies; TooFewError for fewer than three common systems, or where no worker of a study passes."""
    studies = (ScoredStudy(first), ScoredStudy(second))
    systems = [name for name in studies[0].systems if name in studies[1].systems]
    if len(systems) < scoring.LEAST_SYSTEMS:
        raise TooFewError(
            f"replication needs {scoring.LEAST_SYSTEMS} systems that both studies have; there are {len(systems)}"
        )
    columns = [OVERALL, *(name for name in studies[0].columns if name in studies[1].columns and name != OVERALL)]
    return Replication(
        names=(studies[0].name, studies[1].name),
        workers=(studies[0].workers, studies[1].workers),
        systems=systems,
        columns={kind: _correlate_columns(studies, systems, columns, kind, rounds, seed) for kind in (Z, RAW)},
        conclusions=[_compare_conclusions(studies, systems, threshold) for threshold in scoring.THRESHOLDS],
        curve=draw_curve(studies, systems, rounds, seed),
        filters={
            name: _correlate_known(*(_pick_means(study, study.groups[name], systems)[-1] for study in studies))
            for name in studies[0].groups
            if name in studies[1].groups
        },
        left_out=_find_left_out(studies),
        rounds=rounds,
        seed=seed,
    )


def draw_curve(studies: Studies, systems: Sequence[str], rounds: int, seed: int) -> list[ReplicationPoint]:
    """The overall r of ever more workers of the first study, drawn without replacement, with all of the second."""
    whole = _pick_means(studies[1], studies[1].sums[Z], systems)[-1]
    sums = studies[0].sums[Z]
    total = len(sums.dialogues)
    generator = np.random.default_rng(seed)
    sizes = [size for power in range(total) if (size := FEWEST_WORKERS * 2**power) < total]
    points = []
    for size in [*sizes, total]:
        found = []
        for _ in range(rounds if size < total else 1):
            weights = np.zeros(total)
            weights[generator.permutation(total)[:size]] = 1
            found.append(_correlate_known(_pick_means(studies[0], sums, systems, weights)[-1], whole))
        kept = np.array([r for r in found if not np.isnan(r)])
        if kept.size:
            points.append(ReplicationPoint(size, float(np.median(kept)), float(np.percentile(kept, 5))))
    return points


def _pick_means(study: ScoredStudy, sums: SystemSums, systems: Sequence[str], weights: Floats | None = None) -> Floats:
    """By column and system: the means over workers with these weights."""
    places = [study.systems.index(name) for name in systems]
    means = sums.average(sums.everyone if weights is None else weights)
    return np.asarray(np.moveaxis(means[..., places, :], -1, -2))


def _correlate_columns(
    studies: Studies, systems: Sequence[str], columns: Sequence[str], kind: str, rounds: int, seed: int
) -> dict[str, SystemCorrelation]:
    means, draws = [], []
    for number, study in enumerate(studies):
        places = [study.systems.index(name) for name in systems]
        means.append(_pick_means(study, study.sums[kind], systems))
        draws.append(scoring.resample_systems(study.sums[kind], rounds, seed + number)[:, places])
    if not all(len(each) for each in draws):
        draws = [each[:0] for each in draws]
    found = {}
    for name in columns:
        left, right = (study.columns.index(name) for study in studies)
        found[name] = scoring.correlate_systems(
            means[0][left], means[1][right], draws[0][..., left], draws[1][..., right]
        )
    return found


def _correlate_known(left: Floats, right: Floats) -> float:
    """Pearson's r over the systems that both have; NaN for fewer than three."""
    known = ~np.isnan(left) & ~np.isnan(right)
    return compute_pearson(left[known], right[known]) if known.sum() >= scoring.LEAST_SYSTEMS else float("nan")


def _compare_conclusions(studies: Studies, systems: Sequence[str], threshold: float) -> SameConclusions:
    pairs = [pair for pair in combinations(systems, 2) if all(pair in study.p_greater for study in studies)]
    said = [[_conclude(study, pair, threshold) for study in studies] for pair in pairs]
    same = sum(one == other for one, other in said)
    opposite = sum(one * other < 0 for one, other in said)
    return SameConclusions(threshold, len(pairs), same, opposite, same / len(pairs))


def _conclude(study: ScoredStudy, pair: tuple[str, str], threshold: float) -> int:
    """1 where the first system is better, -1 where it is worse, 0 where the test says nothing."""
    return int(study.p_greater[pair] < threshold) - int(study.p_greater[pair[::-1]] < threshold)


def _find_left_out(studies: Studies) -> list[str]:
    reasons = []
    for what, of_study in (
        ("system", [study.systems for study in studies]),
        ("criterion", [study.columns for study in studies]),
    ):
        for number, names in enumerate(of_study):
            alone = sorted(set(names) - set(of_study[1 - number]))
            reasons += [f"{what} {name!r}, which only {studies[number].name} has" for name in alone]
    return reasons


KINDS = {Z: "standardized", RAW: "raw"}


def build_page(found: Replication, command: str) -> Page:
    """The replication in two sentences, then all sections in order."""
    overall = found.columns[Z][OVERALL]
    same = found.conclusions[0]
    return Page(
        title=f"{found.names[0]} and {found.names[1]}",
        summary=[
            f"Over {len(found.systems)} systems the overall scores of {found.names[0]} ({found.workers[0]} workers) "
            f"and {found.names[1]} ({found.workers[1]}) correlate at r = {overall.pearson}; raw ones at "
            f"{found.columns[RAW][OVERALL].pearson}.",
            f"{same.same} of {same.pairs} pairs of systems ({same.share:.1%}) get the same conclusion at p < "
            f"{same.threshold:g}; {same.opposite} get opposite ones.",
        ],
        sections=[_show_columns(found), _show_conclusions(found), _show_curve(found), _show_filters(found)],
        command=command,
    )


def _show_columns(found: Replication) -> Section:
    header = ["score", "Pearson, workers resampled", "Pearson, Fisher's interval", "Spearman", "Kendall"]
    tables = [
        Table(
            f"Correlations over systems, {KINDS[kind]} scores",
            header,
            [[name, each.pearson, each.fisher, each.spearman, each.kendall] for name, each in columns.items()],
        )
        for kind, columns in found.columns.items()
    ]
    text = (
        f"{CONFIDENCE:.0%} intervals from {found.rounds} resamples of the workers of both studies (seed {found.seed}), "
        "as if other workers had rated the same systems. A resample is noisier than the study it is drawn from, so "
        "these intervals lie low. Fisher's interval is about other systems and the same workers."
    )
    return Section("Correlations", [text, *(f"Left out: {reason}." for reason in found.left_out)], tables)


def _show_conclusions(found: Replication) -> Section:
    rows = [
        [f"p < {each.threshold:g}", f"{each.same} of {each.pairs}", f"{each.share:.1%}", each.opposite]
        for each in found.conclusions
    ]
    text = "For each pair of systems a study says better, worse or nothing, by the published one-sided test."
    table = Table("Pairs of systems", ["threshold", "same", "share", "opposite"], rows)
    return Section("Same conclusions", [text], [table])


def _show_curve(found: Replication) -> Section:
    points = [(float(point.workers), Interval(point.median, point.low, point.median)) for point in found.curve]
    rows = [[str(point.workers), point.median, point.low] for point in found.curve]
    text = (
        f"So many workers of {found.names[0]}, drawn without replacement, against all of {found.names[1]}: the "
        "median of r, and its fifth percentile, below which a study so small falls one time in twenty."
    )
    table = Table("Overall correlation", ["workers", "median r", "fifth percentile"], rows)
    chart = draw_lines("Correlation by the number of workers", "workers", {"median r": points})
    return Section("How few workers would have done", [text], [table], [chart])


def _show_filters(found: Replication) -> Section:
    text = (
        "A high correlation is no evidence for the quality control: ratings of workers who fail it can correlate, "
        "too. Judge it by rater agreement and by how far apart the systems come to lie."
    )
    rows = [[name, r] for name, r in found.filters.items()]
    table = Table("Pearson's r of overall scores", ["workers", "r"], rows)
    return Section("What the quality control changes", [text], [table])
