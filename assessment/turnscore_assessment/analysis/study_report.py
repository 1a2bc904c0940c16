"""The report on one study: all of its figures, rater agreement and effort among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median

import numpy as np

from turnscore_assessment.figures import (
    Flags,
    Floats,
    Integers,
    Interval,
    compute_pearson,
    compute_spearman,
    find_interval,
)
from turnscore_assessment.ratings.rating_file import RatedDialogue, RatingFile, StudyDescription
from turnscore_assessment.ratings.rating_table import RatingTable, build_table, group_rows, standardize
from turnscore_assessment.ratings.scoring import (
    OVERALL,
    ComparedPair,
    ControlledWorker,
    SystemScore,
    choose_rows,
    compare_pairs,
    control_quality,
    find_passing,
    resample_systems,
    score_systems,
    sum_values,
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The effort of a group of workers; None where the file does not have it."""

    workers: int
    dialogues: int
    """How many dialogues, those with a degraded system included."""
    ordinary_dialogues: int
    minutes_per_dialogue: float | None
    """The mean over all dialogues, as published."""
    words_per_dialogue: float | None
    """What people wrote: the median over dialogues with ordinary systems, as published."""
    words_per_input: float | None
    """The median over single inputs of the same dialogues."""


def measure_effort(dialogues: Iterable[RatedDialogue]) -> Effort:
    """The effort behind these dialogues."""
    rows = list(dialogues)
    inputs = [_count_words(row) for row in rows if row.turns and not row.degraded]
    return Effort(
        workers=len({row.worker for row in rows}),
        dialogues=len(rows),
        ordinary_dialogues=sum(not row.degraded for row in rows),
        minutes_per_dialogue=_apply(fmean, [row.seconds / 60 for row in rows if row.seconds is not None]),
        words_per_dialogue=_apply(median, [sum(counts) for counts in inputs]),
        words_per_input=_apply(median, [count for counts in inputs for count in counts]),
    )


def _count_words(dialogue: RatedDialogue) -> list[int]:
    return [len(turn.text.split()) for turn in dialogue.turns if turn.speaker == "user"]


def _apply(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return float(statistic(values)) if values else None


LEAST_DIALOGUES = 3
"""With two dialogues, a correlation is always 1 or -1. Specified."""
MOST_PAIRS = 200_000
"""Most pairs; of more, so many are drawn. Chosen: three hundred times the published study's."""
BIN_EDGES = np.round(np.arange(-1, 1.01, 0.1), 1)


@dataclass(frozen=True, kw_only=True)
class PairAgreement:
    """The correlations of pairs of assignments that rated the same systems."""

    pairs: int
    undefined: int
    """Pairs in which an assignment gave one rating to everything."""
    median: float
    """NaN where there is no pair."""
    ordinary_median: float = float("nan")
    """The median without the degraded system, by which workers are selected, so that it raises `median`."""
    histogram: Sequence[int]
    """How many pairs lie in each tenth from -1 to 1."""


def measure_pairs(
    ratings: RatingFile, table: RatingTable, means: Floats, passing: Flags, seed: int
) -> dict[bool, PairAgreement]:
    """Pearson's r of every pair of assignments with the same systems: of workers who pass, and of those who fail.

    `means` has each dialogue's mean z over criteria; systems are compared by name, the degraded one among them (Ji et
    al. 2022, figure 2). A worker who did two such HITs is a pair, too, as published.
    """
    every, ordinary = (
        _measure_rows(ratings, table, means, passing, chosen, np.random.default_rng(seed))
        for chosen in (np.ones_like(table.is_degraded), ~table.is_degraded)
    )
    return {does_pass: replace(found, ordinary_median=ordinary[does_pass].median) for does_pass, found in every.items()}


def _measure_rows(
    ratings: RatingFile,
    table: RatingTable,
    means: Floats,
    passing: Flags,
    chosen: Flags,
    generator: np.random.Generator,
) -> dict[bool, PairAgreement]:
    groups: dict[bool, dict[tuple[str, ...], list[Floats]]] = {True: {}, False: {}}
    names = [dialogue.system for dialogue in ratings.dialogues]
    for assigned in group_rows(table.assignment_of, int(table.assignment_of.max()) + 1):
        rows = assigned[chosen[assigned]]
        if len(rows) >= LEAST_DIALOGUES:
            ordered = sorted(rows, key=lambda row: names[row])
            met = tuple(names[row] for row in ordered)
            groups[bool(passing[table.worker_of[rows[0]]])].setdefault(met, []).append(means[ordered])
    return {does_pass: _correlate_all(list(found.values()), generator) for does_pass, found in groups.items()}


def _correlate_all(groups: Sequence[Sequence[Floats]], generator: np.random.Generator) -> PairAgreement:
    total = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    found = [np.empty(0)]
    for group in groups:
        pairs = len(group) * (len(group) - 1) // 2
        if pairs:
            left, right = _choose_pairs(len(group), int(np.ceil(pairs * min(1, MOST_PAIRS / total))), generator)
            found.append(_correlate_rows(np.stack(group), left, right))
    correlations = np.concatenate(found)
    defined = correlations[~np.isnan(correlations)]
    return PairAgreement(
        pairs=len(defined),
        undefined=len(correlations) - len(defined),
        median=float(np.median(defined)) if defined.size else float("nan"),
        histogram=[int(count) for count in np.histogram(defined, BIN_EDGES)[0]],
    )


def _choose_pairs(members: int, wanted: int, generator: np.random.Generator) -> tuple[Integers, Integers]:
    if wanted == members * (members - 1) // 2:
        left, right = np.triu_indices(members, 1)
        return left, right
    left = generator.integers(0, members, wanted)
    return left, (left + generator.integers(1, members, wanted)) % members


def _correlate_rows(rows: Floats, left: Integers, right: Integers) -> Floats:
    centred = rows - rows.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    units = np.divide(centred, norms[:, None], out=np.full_like(centred, np.nan), where=norms[:, None] > 1e-12)
    return np.asarray(np.clip((units[left] * units[right]).sum(axis=1), -1, 1))


PASSED, FAILED, EVERYONE = "passed", "failed", "all"
LEAST_SYSTEMS = 3
"""With fewer systems, correlations over systems are always 1 or -1. Specified."""


@dataclass(frozen=True, kw_only=True)
class CorrelatedCriteria:
    """How two criteria go together over systems, by raw scores as published."""

    first: str
    second: str
    pearson: float
    spearman: float


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """All figures of a study, and how to get them again."""

    description: StudyDescription
    rounds: int
    seed: int
    workers: Sequence[ControlledWorker]
    """Numbered, not named."""
    systems: Sequence[SystemScore]
    """Best first."""
    pairs: Sequence[ComparedPair]
    criteria: Sequence[CorrelatedCriteria]
    """Every two criteria; empty for fewer than three systems."""
    agreement: Mapping[str, PairAgreement]
    effort: Mapping[str, Effort]

    @property
    def passing(self) -> int:
        return sum(worker.passes for worker in self.workers)


def build_report(ratings: RatingFile, rounds: int, seed: int) -> StudyReport:
    """The report. TooFewError where no worker passes."""
    table = build_table(ratings)
    workers = control_quality(table)
    passing = find_passing(workers)
    chosen = choose_rows(table, passing)
    z = standardize(table)
    sums = sum_values(table, z, chosen)
    raw = sum_values(table, table.ratings, chosen)
    draws = resample_systems(sums, rounds, seed)
    systems = score_systems(table, sums, raw, [draws, resample_systems(raw, rounds, seed)])
    means = z.mean(axis=1)
    return StudyReport(
        description=ratings.description,
        rounds=rounds,
        seed=seed,
        workers=[replace(worker, worker=str(number)) for number, worker in enumerate(workers, start=1)],
        systems=systems,
        pairs=_compare(table, systems, means, chosen, draws),
        criteria=correlate_criteria(systems, [OVERALL, *ratings.description.names]),
        agreement={
            PASSED if does_pass else FAILED: found
            for does_pass, found in measure_pairs(ratings, table, means, passing, seed).items()
        },
        effort=_measure_effort(ratings, table, passing),
    )


def correlate_criteria(systems: Sequence[SystemScore], names: Sequence[str]) -> list[CorrelatedCriteria]:
    """How criteria go together over systems; empty for fewer than three systems."""
    if len(systems) < LEAST_SYSTEMS:
        return []
    columns = {name: [system.raw[name].value for system in systems] for name in names}
    return [
        CorrelatedCriteria(
            first=left,
            second=right,
            pearson=compute_pearson(columns[left], columns[right]),
            spearman=compute_spearman(columns[left], columns[right]),
        )
        for left, right in combinations(names, 2)
    ]


def _compare(
    table: RatingTable, systems: Sequence[SystemScore], means: Floats, chosen: Flags, draws: Floats
) -> list[ComparedPair]:
    order = [system.system for system in systems]
    number_of = {name: number for number, name in enumerate(table.systems)}
    rows = np.flatnonzero(chosen)
    of_system = group_rows(table.system_of[rows], len(table.systems))
    values = {name: means[rows[of_system[number_of[name]]]] for name in order}
    overall = draws[:, :, -1]
    workers = len(np.unique(table.worker_of[rows]))
    differences: dict[tuple[str, str], Interval] = {}
    for first, second in combinations(order, 2):
        gap = float(values[first].mean() - values[second].mean())
        drawn = overall[:, number_of[first]] - overall[:, number_of[second]]
        differences[first, second] = find_interval(gap, drawn, workers)
    return compare_pairs(values, order, differences)


def _measure_effort(ratings: RatingFile, table: RatingTable, passing: Flags) -> dict[str, Effort]:
    does_pass = passing[table.worker_of]
    rows = ratings.dialogues
    return {
        PASSED: measure_effort(row for row, passes in zip(rows, does_pass, strict=True) if passes),
        FAILED: measure_effort(row for row, passes in zip(rows, does_pass, strict=True) if not passes),
        EVERYONE: measure_effort(rows),
    }
