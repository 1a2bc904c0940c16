"""`python experiments/simulate_comparisons.py`: whether comparisons keep their promises, on made-up scores.

Prints the tables of docs/compare.md: how often two equal systems are called different by looking after every
observation, when a real difference is found, and how often `compare A B` calls equal systems different.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from turnscore_assessment.comparison.comparison import correct_p_values
from turnscore_assessment.comparison.difference import ROUNDS, measure_difference
from turnscore_assessment.comparison.sequential import AsymptoticSequence, BettingSequence
from turnscore_assessment.figures import Floats

Draw = Callable[[np.random.Generator, int], Floats]

LOOKS = 1000
LEVEL = 0.05
FIRST_T_LOOK = 30  # The t-test skips the earliest looks, at which it is worst.
SHIFTS = (10.0, 20.0)
SIZES = ((10, 10), (10, 100), (30, 30), (100, 100))
SCORERS = 4
FEW_ROUNDS = 999


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
# Dialogues' scores of A and of B, with equal means.
SCORES: dict[str, tuple[Draw, Draw]] = {
    "normal": (lambda generator, count: generator.normal(0, 1, count),) * 2,
    "gamma(2)": (lambda generator, count: generator.gamma(2, 1, count),) * 2,
    "beta(.6, 3)": (lambda generator, count: generator.beta(0.6, 3, count),) * 2,
    "five steps": (lambda generator, count: generator.binomial(4, 0.8, count).astype(np.float64),) * 2,
    "normal, deviations 1 and 3": (
        lambda generator, count: generator.normal(0, 1, count),
        lambda generator, count: generator.normal(0, 3, count),
    ),
    "normal and gamma(2)": (
        lambda generator, count: generator.normal(2, 1, count),
        lambda generator, count: generator.gamma(2, 1, count),
    ),
}
SEQUENCES: dict[str, BettingSequence | AsymptoticSequence] = {
    "betting": BettingSequence(lowest=-100, highest=100, alpha=LEVEL),
    "asymptotic": AsymptoticSequence(alpha=LEVEL),
}


def count_calls(name: str, draw: Draw, studies: int, shift: float = 0.0, seed: int = 0) -> tuple[float, float]:
    """The share of studies in which the systems are called different, and the median of the looks that call it.

    `name` is one of SEQUENCES or `t-test`; `shift` is the true difference.
    """
    generator = np.random.default_rng(seed)
    stops = []
    for _ in range(studies):
        values = np.clip(draw(generator, LOOKS) + shift, -100, 100)
        is_called = _look_with_t(values) if name == "t-test" else SEQUENCES[name].follow_p(values) < LEVEL
        if is_called.any():
            stops.append(int(np.argmax(is_called)) + 1)
    return len(stops) / studies, float(np.median(stops)) if stops else float("nan")


def _look_with_t(values: Floats) -> NDArray[np.bool_]:
    count = np.arange(1, len(values) + 1)
    means = values.cumsum() / count
    variances = np.maximum((values**2).cumsum() / count - means**2, 0) * count / np.maximum(count - 1, 1)
    return np.asarray((np.abs(means) > 1.96 * np.sqrt(variances / count)) & (count >= FIRST_T_LOOK))


def count_false_verdicts(
    draw_a: Draw,
    draw_b: Draw,
    sizes: tuple[int, int],
    studies: int,
    *,
    paired: bool,
    scorers: int = 1,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> float:
    """The share of studies for which `compare A B` prints "decided" for any of so many scorers of equal means.

    As the interval is the inverse of the test, one scorer's share is also that of intervals without the truth. Half of
    a pair's variance is shared by its two dialogues.
    """
    generator = np.random.default_rng(seed)
    called = 0
    for study in range(studies):
        found = {}
        for scorer in range(scorers):
            x, y = draw_a(generator, sizes[0]), draw_b(generator, sizes[1])
            shared = draw_a(generator, max(sizes)) if paired else np.zeros(max(sizes))
            sides = x + shared[: sizes[0]], y + shared[: sizes[1]]
            found[scorer] = measure_difference(*sides, paired=paired, rounds=rounds, seed=study)
        called += any(p < LEVEL for p in correct_p_values(found, "holm").values())
    return called / studies


def main(studies: Annotated[int, typer.Option(min=10)] = 4000, seed: int = 0) -> None:
    """Prints both tables."""
    typer.echo(f"equal systems, {LOOKS} looks, {studies} studies: share called different at level {LEVEL}")
    for name in (*SEQUENCES, "t-test"):
        rates = [f"{drawn} {count_calls(name, draw, studies, seed=seed)[0]:.1%}" for drawn, draw in DRAWS.items()]
        typer.echo(f"  {name}: {', '.join(rates)}")
    for shift in SHIFTS:
        for name in SEQUENCES:
            rate, median = count_calls(name, draw_ratings, studies, shift, seed)
            typer.echo(f"difference {shift:g}: {name} sees it in {rate:.1%}, median after {median:g}")
    few = max(1, studies // 4)
    typer.echo(f"compare A B, equal systems, {few} studies: share decided")
    count = partial(count_false_verdicts, studies=few, rounds=FEW_ROUNDS, seed=seed)
    for name, drawn in SCORES.items():
        for sizes in SIZES:
            cases = {"one scorer": (False, 1), f"any of {SCORERS} scorers": (False, SCORERS), "pairs": (True, 1)}
            shares = [
                f"{case} {count(*drawn, sizes, paired=paired, scorers=scorers):.1%}"
                for case, (paired, scorers) in cases.items()
                if not paired or sizes[0] == sizes[1]
            ]
            typer.echo(f"  {name}, {sizes[0]} and {sizes[1]}: {', '.join(shares)}")


if __name__ == "__main__":
    typer.run(main)
