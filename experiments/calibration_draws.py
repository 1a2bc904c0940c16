"""How often a calibrated threshold breaks its promise among made-up raters.

    .venv-dev/bin/python experiments/calibration_draws.py --draws 500

The promise: at most 5 % of good turns are called low, in 95 of 100 draws of rated turns.
"""

from typing import Annotated

import numpy as np
import typer
from turnscore_assessment.figures import Flags, Floats
from turnscore_core.scorers.quality import HEADS, ValueFormula
from turnscore_exporters.calibration.recalibration import RatedHeads, calibrate_formula

POPULATION = 40_000  # Turns on which the true rate of false alarms is counted: to 0.3 points, at 5 %.
SHIPPED = ValueFormula(weights={"relevant": 0.5, "engaging": 0.3, "overall": 0.8, "sentiment": 0.4}, bias=-0.2)
# The simulated raters' weights, in standard deviations of the heads: not the shipped ones.
LIKING = np.array([0.9, 0.2, 0.1, 0.8, 0.0, 0.4])


def draw_heads(turns: int, generator: np.random.Generator) -> tuple[Floats, Flags]:
    """Heads of turns, correlated as real heads are, and whether the raters call each good."""
    shared = generator.normal(size=(turns, 1))
    latent = 0.6 * shared + 0.8 * generator.normal(size=(turns, len(HEADS)))
    heads = 1 / (1 + np.exp(-latent))
    heads[:, HEADS.index("sentiment")] = np.tanh(latent[:, HEADS.index("sentiment")])
    good = generator.random(turns) < 1 / (1 + np.exp(-(2.5 + 1.5 * latent @ LIKING)))
    return heads, good


def run_draws(draws: int, turns: int = 200, rate: float = 0.05, seed: int = 0) -> Floats:
    """Calibrates on so many draws of that many rated turns, each turn of its own dialogue.

    Of each draw the false alarms, the recall, and whether new weights of the heads were fitted [draws, 3].
    """
    generator = np.random.default_rng(seed)
    heads, good = draw_heads(POPULATION, generator)
    outcomes = []
    for _ in range(draws):
        rated_heads, rated_good = draw_heads(turns, generator)
        rated = RatedHeads(rated_heads, rated_good, [str(place) for place in range(turns)], [()] * turns)
        choice, made = calibrate_formula(rated, SHIPPED, rate=rate, source="simulated raters")
        low = choice.formula.values_of(choice.formula.weigh(heads)) < made.threshold.value
        outcomes.append((low[good].mean(), low[~good].mean(), not choice.keeps_order))
    return np.array(outcomes, dtype=np.float64)


def raters(
    draws: Annotated[int, typer.Option(min=1)] = 500,
    turns: Annotated[int, typer.Option(min=60, help="Rated turns in a draw.")] = 200,
    rate: Annotated[float, typer.Option(help="False alarms promised.")] = 0.05,
    seed: int = 0,
) -> None:
    """Prints how often the promise is broken."""
    false_alarms, recall, reweighted = run_draws(draws, turns, rate, seed).T
    broken = int((false_alarms > rate).sum())
    typer.echo(
        f"{draws} draws of {turns} turns: more than {rate:.0%} of good turns called low in {broken} "
        f"({broken / draws:.1%}); mean false alarms {false_alarms.mean():.1%}, mean recall {recall.mean():.1%}; "
        f"new weights in {reweighted.sum():.0f}"
    )


if __name__ == "__main__":
    typer.run(raters)
