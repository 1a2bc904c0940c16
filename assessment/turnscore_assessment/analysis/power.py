"""How many workers show a difference between two systems, by simulating studies from a pilot's ratings.

A simulated study draws workers with replacement, and of each its dialogues with replacement, and tests the workers'
differences with a two-sided t-test (of means, Welch's, where workers see one system each). The pilot's own difference
is replaced by the planned one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy
from typer import Option

from turnscore_assessment.command_line import SeedOption
from turnscore_assessment.comparison.difference import LEVEL, POWER, find_needed_dialogues
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import Flags, Floats, Integers, split_rounds
from turnscore_assessment.ratings.rating_file import OVERALL, RatingFile, RatingTable, RatingUnit, group_rows
from turnscore_assessment.ratings.scoring import check_pair, choose_column, judge_study

# Fewest workers who rated both systems, or each of them. Fewer hardly show how workers differ.
LEAST_WORKERS = 5


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The values of each worker's dialogues: a row per worker, as many values as dialogues, for A and for B."""

    a: Sequence[Floats]
    b: Sequence[Floats]
    is_paired: bool  # Whether the rows of both are the same workers; otherwise each worker rated one of the systems.
    transforms: Sequence[str]
    notes: Sequence[str]

    @property
    def difference(self) -> float:
        """The mean over workers of A's mean less B's."""
        return float(np.mean([each.mean() for each in self.a]) - np.mean([each.mean() for each in self.b]))

    @property
    def spread(self) -> float:
        """The standard deviation of a worker's difference if paired, else of a worker's mean within a system."""
        a, b = (np.array([each.mean() for each in side]) for side in (self.a, self.b))
        if self.is_paired:
            return float((a - b).std(ddof=1))
        return float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))

    @property
    def error(self) -> float:
        """The standard error of `difference`."""
        if self.is_paired:
            return self.spread / float(np.sqrt(len(self.a)))
        return self.spread * float(np.sqrt(1 / len(self.a) + 1 / len(self.b)))


def read_pilot(
    ratings: RatingFile, a: str, b: str, criterion: str = OVERALL, transform: RatingUnit = "z", dialogues: int = 1
) -> Pilot:
    """The pilot's workers who pass the quality control and rated as many dialogues of a system as are planned, two at
    least if that is more than one: those who rated both systems, if they are enough, otherwise those who rated one.

    Raises AssessmentError or TooFewError naming what is missing.
    """
    study = judge_study(ratings, needs_passing=False)
    table, passing = study.table, study.passing
    check_pair(a, b, table.systems)
    values = study.z if transform == "z" else table.ratings
    column = choose_column(table, values, criterion)
    sides = [_collect(table, column, table.systems.index(system), passing) for system in (a, b)]
    failing = int((~passing).sum())
    notes = [f"{failing} of {len(passing)} workers do not pass the quality control"] if failing else []
    raw, z = "none: raw ratings, negative criteria reversed", "z per worker, over all criteria and dialogues"
    transforms = [z if transform == "z" else raw, f"criterion {criterion}"]
    least = min(dialogues, 2)
    both = [(x, y) for x, y in zip(*sides, strict=True) if min(len(x), len(y)) >= least]
    if len(both) >= LEAST_WORKERS:
        return Pilot(a=[x for x, _ in both], b=[y for _, y in both], is_paired=True, transforms=transforms, notes=notes)
    alone = [
        [own for own, other in zip(sides[side], sides[1 - side], strict=True) if len(own) >= least and not len(other)]
        for side in (0, 1)
    ]
    if min(map(len, alone)) < LEAST_WORKERS:
        enough = f"{least} dialogues of each" if least > 1 else "each"
        raise TooFewError(
            f"{len(both)} workers rated {enough} of {a!r} and {b!r}, {len(alone[0])} and {len(alone[1])} only one of "
            f"them; {LEAST_WORKERS} are needed"
        )
    return Pilot(a=alone[0], b=alone[1], is_paired=False, transforms=transforms, notes=notes)


def _collect(table: RatingTable, column: Floats, system: int, passing: Flags) -> list[Floats]:
    """The values of each passing worker's dialogues with the system."""
    rows = np.flatnonzero(table.system_of == system)
    groups = group_rows(table.worker_of[rows], len(table.workers))
    return [column[rows[group]] for group, passes in zip(groups, passing, strict=True) if passes]


MOST_WORKERS = 5000  # Most workers: a plan that needs more is reported as such.
CURVE = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # Shares of the needed workers at which the power is shown.
CERTAINTY = 1.96
FEWEST_WORKERS = 3  # Fewest workers. Specified: of two, a t-test shows next to nothing.
FEW_WORKERS = 20  # Workers below which the plan warns. Chosen: the deviation of twenty is known to a third.


@dataclass(frozen=True, kw_only=True)
class PowerPoint:
    """The share of simulated studies of so many workers that find the difference, with its Monte-Carlo error."""

    workers: int
    power: float
    error: float  # The standard error of a share of so few simulated studies, without the pilot's own error.
    wrong: float  # The share that finds the reversed difference.


@dataclass(frozen=True, kw_only=True)
class PowerPlan:
    """The plan. `needed` is None above MOST_WORKERS; it is per system where workers see one."""

    difference: float
    level: float
    power: float
    dialogues: int  # Dialogues per worker and system.
    is_paired: bool
    needed: int | None
    needed_low: int | None
    needed_high: int | None  # Ends of the number's interval, from the Monte-Carlo error alone.
    curve: Sequence[PowerPoint]
    # How often studies of that size find a difference where there is none: about the level, if the test is sound.
    false_alarms: PowerPoint | None
    simulations: int
    spread: float
    pilot_difference: float
    pilot_error: float
    pilot_workers: tuple[int, int]
    notes: Sequence[str]
    transforms: Sequence[str]


Simulate = Callable[[int], PowerPoint]


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """What is planned; options of the command."""

    difference: Annotated[
        float | None,
        Option(help="Smallest difference that matters, in the unit of --transform; default: the pilot's own."),
    ] = None
    dialogues: Annotated[int, Option(min=1, max=100, help="Dialogues of each system that a worker rates.")] = 1
    level: Annotated[float, Option(min=0.00001, max=0.5, help="Level of the test.")] = LEVEL
    power: Annotated[float, Option(min=0.1, max=0.99, help="Share of studies that must see the difference.")] = POWER
    # Chosen: a power of 80 % is then known to 1.8 points either way.
    simulations: Annotated[int, Option(min=100, max=100_000, help="Studies simulated.")] = 2000
    seed: SeedOption = 0


def plan_study(pilot: Pilot, asked: PowerOptions) -> PowerPlan:
    """The fewest workers with that power; the difference is the pilot's own unless said. AssessmentError for none."""
    planned = pilot.difference if asked.difference is None else asked.difference
    if not planned or not math.isfinite(planned):
        raise AssessmentError("difference: must be finite and not 0: no study can detect a zero difference")

    def simulate(workers: int, shift: float = planned) -> PowerPoint:
        return simulate_power(pilot, workers, shift, asked)

    guess = find_needed_dialogues(planned, pilot.spread, paired=pilot.is_paired, level=asked.level, power=asked.power)
    needed = None if guess is None or guess > MOST_WORKERS else _search(simulate, guess, asked.power)
    points = [] if needed is None else [simulate(max(FEWEST_WORKERS, round(share * needed))) for share in CURVE]
    low, high = (None, None) if needed is None else _bound(simulate(needed), asked.level, asked.power)
    return PowerPlan(
        difference=planned,
        level=asked.level,
        power=asked.power,
        dialogues=asked.dialogues,
        is_paired=pilot.is_paired,
        needed=needed,
        needed_low=low,
        needed_high=high,
        curve=points,
        false_alarms=None if needed is None else simulate(needed, 0.0),
        simulations=asked.simulations,
        spread=pilot.spread,
        pilot_difference=pilot.difference,
        pilot_error=pilot.error,
        pilot_workers=(len(pilot.a), len(pilot.b)),
        notes=list(_note(pilot, asked.difference)),
        transforms=list(pilot.transforms),
    )


def simulate_power(pilot: Pilot, workers: int, difference: float, asked: PowerOptions) -> PowerPoint:
    """Power of studies in which so many workers (per system if not paired) rate so many dialogues of each system."""
    generator, simulations = np.random.default_rng(asked.seed), asked.simulations
    shift = difference - pilot.difference
    seen = wrong = 0
    for studies in split_rounds(simulations, workers * asked.dialogues):
        statistics, edges = _test(pilot, studies, workers, shift, asked, generator)
        right = statistics if difference >= 0 else -statistics
        seen += int((right > edges).sum())
        wrong += int((right < -edges).sum())
    share = seen / simulations
    error = math.sqrt(max(share * (1 - share), 1 / simulations**2) / simulations)
    return PowerPoint(workers=workers, power=share, error=error, wrong=wrong / simulations)


def _test(
    pilot: Pilot, studies: int, workers: int, shift: float, asked: PowerOptions, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """The t statistic of each simulated study, and the value beyond which it is significant."""
    drawn = generator.integers(0, len(pilot.a), (studies, workers))
    others = drawn if pilot.is_paired else generator.integers(0, len(pilot.b), (studies, workers))
    a = _draw(pilot.a, drawn, asked.dialogues, generator) + shift
    b = _draw(pilot.b, others, asked.dialogues, generator)
    if pilot.is_paired:
        differences = a - b
        means, variances = differences.mean(axis=1), differences.var(axis=1, ddof=1) / workers
        freedom = np.full(studies, workers - 1.0)
    else:
        means, parts = a.mean(axis=1) - b.mean(axis=1), [side.var(axis=1, ddof=1) / workers for side in (a, b)]
        variances = parts[0] + parts[1]
        with np.errstate(invalid="ignore"):
            freedom = variances**2 * (workers - 1) / (parts[0] ** 2 + parts[1] ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = means / np.sqrt(variances)
    edges = scipy.stats.t.ppf(1 - asked.level / 2, np.nan_to_num(freedom, nan=1.0))
    return np.nan_to_num(statistics, nan=0.0), np.asarray(edges, dtype=np.float64)


def _draw(values: Sequence[Floats], drawn: Integers, dialogues: int, generator: np.random.Generator) -> Floats:
    """The mean of so many dialogues, drawn with replacement, of each worker drawn."""
    counts = np.array([len(each) for each in values])
    starts = np.cumsum(counts) - counts
    places = (generator.random((*drawn.shape, dialogues)) * counts[drawn][..., None]).astype(np.intp)
    # Distances from the mean of workers' means are stretched: a resample varies as n - 1 of n.
    centre = float(np.mean([each.mean() for each in values]))
    every = centre + (np.concatenate(values) - centre) * math.sqrt(len(values) / (len(values) - 1))
    return np.asarray(every[starts[drawn][..., None] + places].mean(axis=-1))


def _search(simulate: Simulate, guess: int, power: float) -> int | None:
    """The fewest workers with that power: a bracket about the guess, then bisection, all with one seed."""
    high = guess
    while simulate(high).power < power:
        high *= 2
        if high > MOST_WORKERS:
            return None
    low = FEWEST_WORKERS - 1
    while high - low > 1:
        middle = max((low + high) // 2, min(high - 1, int(0.7 * high)))
        low, high = (low, middle) if simulate(middle).power >= power else (middle, high)
    return high


def _bound(found: PowerPoint, level: float, power: float) -> tuple[int, int]:
    """The needed workers if the power is off by its Monte-Carlo error, by the normal formula."""
    edge, wanted = scipy.stats.norm.ppf([1 - level / 2, power])
    bounds = []
    for share in (found.power + CERTAINTY * found.error, found.power - CERTAINTY * found.error):
        has = scipy.stats.norm.ppf(min(max(share, 0.01), 0.999))
        bounds.append(found.workers * ((edge + wanted) / max(edge + has, 0.1)) ** 2)
    return max(FEWEST_WORKERS, math.floor(bounds[0])), math.ceil(bounds[1])


def _note(pilot: Pilot, difference: float | None) -> Iterator[str]:
    yield from pilot.notes
    if difference is None:
        yield (
            f"the difference is the pilot's own, known to {CERTAINTY * pilot.error:.3g} either way: say the smallest "
            "difference that matters with --difference"
        )
    if not pilot.is_paired:
        yield "workers see one system each: this many are needed of each"
    if min(len(pilot.a), len(pilot.b)) < FEW_WORKERS:
        yield f"fewer than {FEW_WORKERS} workers: how much workers differ is hardly known"
