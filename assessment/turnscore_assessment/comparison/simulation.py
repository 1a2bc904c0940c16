"""`python -m turnscore_assessment.comparison.simulation`: whether comparisons keep their promises, on made-up scores.

Prints the tables of docs/compare.md: how often two equal systems are called different by looking after every
observation, when a real difference is found, and how often the interval of `compare A B` holds the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from turnscore_assessment.comparison.confidence_sequence import AsymptoticSequence, BettingSequence
from turnscore_assessment.comparison.difference import measure_difference
from turnscore_assessment.comparison.sequential import collect_observations
from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import read_ratings

Draw = Callable[[np.random.Generator, int], Floats]

LOOKS = 1000
LEVEL = 0.05
FIRST_T_LOOK = 30
"""The t-test skips the earliest looks, at which it is worst."""
SHIFTS = (10.0, 20.0)
SIZES = ((10, 10), (25, 40), (100, 100))


def draw_ratings(generator: np.random.Generator, count: int) -> Floats:
    """Differences of two sliders from 0 to 100 with a worker's bias that cancels: about normal, deviation near 30."""
    centre = generator.uniform(30, 70, count)
    a, b = (np.clip(centre + generator.normal(0, 22, count), 0, 100).round() for _ in range(2))
    return np.asarray(a - b)


def draw_skewed(generator: np.random.Generator, count: int) -> Floats:
    """Mean 0: of ten workers nine like A a little more, one likes it much less."""
    small, large = generator.integers(0, 11, count), generator.integers(-50, -39, count)
    return np.asarray(np.where(generator.random(count) < 0.9, small, large), dtype=np.float64)


def draw_rare(generator: np.random.Generator, count: int) -> Floats:
    """Mean 0: of a hundred workers one differs by the whole range, the others by one point the other way."""
    return np.asarray(np.where(generator.random(count) < 0.99, 1.0, -99.0))


DRAWS: dict[str, Draw] = {"ratings": draw_ratings, "skewed": draw_skewed, "rare": draw_rare}
SEQUENCES: dict[str, BettingSequence | AsymptoticSequence] = {
    "betting": BettingSequence(lowest=-100, highest=100, alpha=LEVEL),
    "asymptotic": AsymptoticSequence(alpha=LEVEL),
}


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How often the sequence, or looking with a t-test, called the systems different, and when."""

    studies: int
    called: int
    median_stop: float

    @property
    def rate(self) -> float:
        return self.called / self.studies


def count_calls(name: str, draw: Draw, studies: int, shift: float = 0.0, seed: int = 0) -> Tally:
    """`name` is one of SEQUENCES or `t-test`; `shift` is the true difference."""
    generator = np.random.default_rng(seed)
    stops = []
    for _ in range(studies):
        values = np.clip(draw(generator, LOOKS) + shift, -100, 100)
        is_called = _look_with_t(values) if name == "t-test" else SEQUENCES[name].follow_p(values) < LEVEL
        if is_called.any():
            stops.append(int(np.argmax(is_called)) + 1)
    return Tally(studies=studies, called=len(stops), median_stop=float(np.median(stops)) if stops else float("nan"))


def _look_with_t(values: Floats) -> NDArray[np.bool_]:
    count = np.arange(1, len(values) + 1)
    means = values.cumsum() / count
    variances = np.maximum((values**2).cumsum() / count - means**2, 0) * count / np.maximum(count - 1, 1)
    return np.asarray((np.abs(means) > 1.96 * np.sqrt(variances / count)) & (count >= FIRST_T_LOOK))


def draw_from(differences: Floats) -> Draw:
    """Differences of people's ratings with random signs: two systems that people like equally."""

    def draw(generator: np.random.Generator, count: int) -> Floats:
        return np.asarray(generator.choice(differences, count) * generator.choice([-1.0, 1.0], count))

    return draw


def count_covered(sizes: tuple[int, int], studies: int, *, paired: bool, seed: int = 0) -> tuple[float, float]:
    """The shares of studies whose interval holds the true difference, and whose p-value calls equal systems different.

    Scores are gamma(2): skewed, as FED's are; the true difference is 0.5. Pairs share half of their variance.
    """
    generator = np.random.default_rng(seed)
    covered = alarms = 0
    for study in range(studies):
        shared = generator.gamma(2, 1, max(sizes)) if paired else np.zeros(max(sizes))
        x, y = (generator.gamma(2, 1, size) + shared[:size] for size in sizes)
        found = measure_difference(x + 0.5, y, paired=paired, rounds=999, seed=study)
        covered += found.difference.low <= 0.5 <= found.difference.high
        alarms += (measure_difference(x, y, paired=paired, rounds=999, seed=study).p_value or 1.0) < LEVEL
    return covered / studies, alarms / studies


def main(
    studies: Annotated[int, typer.Option(min=10)] = 4000,
    ratings: Annotated[
        Path | None, typer.Option(exists=True, help="A study whose differences are drawn as well.")
    ] = None,
    systems: Annotated[str, typer.Option(help="Two systems of that study.")] = "A,B",
    seed: int = 0,
) -> None:
    """Prints both tables."""
    draws = dict(DRAWS)
    if ratings is not None:
        observed = collect_observations(read_ratings(ratings), *systems.split(",", 1))
        draws[f"{ratings.name} {systems}"] = draw_from(observed.differences)
    typer.echo(f"equal systems, {LOOKS} looks, {studies} studies: share called different at level {LEVEL}")
    for name in (*SEQUENCES, "t-test"):
        rates = [
            f"{draw_name} {count_calls(name, draw, studies, seed=seed).rate:.1%}" for draw_name, draw in draws.items()
        ]
        typer.echo(f"  {name}: {', '.join(rates)}")
    for shift in SHIFTS:
        for name in SEQUENCES:
            tally = count_calls(name, draw_ratings, studies, shift, seed)
            typer.echo(f"difference {shift:g}: {name} sees it in {tally.rate:.1%}, median after {tally.median_stop:g}")
    typer.echo(
        f"compare A B, skewed scores, {studies} studies: interval holds the truth; equal systems called different"
    )
    for sizes in SIZES:
        for paired in (False, True):
            drawn = (min(sizes),) * 2 if paired else sizes
            covered, alarms = count_covered((drawn[0], drawn[1]), studies, paired=paired, seed=seed)
            typer.echo(f"  {drawn[0]} and {drawn[1]} {'pairs' if paired else 'apart'}: {covered:.1%}; {alarms:.1%}")


if __name__ == "__main__":
    typer.run(main)
