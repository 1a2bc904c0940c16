"""How often a calibrated threshold breaks its promise: among made-up raters, and among judged turns.

    .venv-dev/bin/python experiments/calibration_draws.py raters --draws 500
    .venv-dev/bin/python experiments/calibration_draws.py judged --data DATA

The promise: at most 5 % of good turns are called low, in 95 of 100 draws of rated turns. Judged turns are DBDC3's,
which 30 people judged each, and on which nothing of a bundle was fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from quality_bundle import KIND, is_good
from turnscore_assessment.agreement.scoring import load_bundles, make_turn
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.data.dialogues import DBDC3_FILE, LabelledTurn, read_dbdc3
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.quality import HEADS, QualityOptions, ValueFormula
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_core.scoring import score_turns
from turnscore_exporters.calibration.recalibration import (
    RatedHeads,
    ThresholdCalibration,
    calibrate_formula,
    compute_values,
    weigh_rated,
)
from turnscore_exporters.errors import ExporterError

POPULATION = 40_000  # Turns on which the true rate of false alarms is counted: to 0.3 points, at 5 %.
SHIPPED = ValueFormula(weights={"relevant": 0.5, "engaging": 0.3, "overall": 0.8, "sentiment": 0.4}, bias=-0.2)
# The simulated raters' weights, in standard deviations of the heads: not the shipped ones.
LIKING = np.array([0.9, 0.2, 0.1, 0.8, 0.0, 0.4])

Floats = NDArray[np.float64]


# What a draw's threshold does on turns that were not drawn: false alarms, recall, whether new weights were fitted.
Outcome = tuple[float, float, bool]


@dataclass(frozen=True, kw_only=True)
class CountedDraws:
    """The counts over all draws."""

    draws: int
    broken: int  # Draws in which more good turns than promised are called low.
    false_alarms: float
    recall: float
    reweighted: int  # Draws in which new weights of the heads were fitted.


def draw_heads(turns: int, generator: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
    """Heads of turns, correlated as real heads are, and whether the raters call each good."""
    shared = generator.normal(size=(turns, 1))
    latent = 0.6 * shared + 0.8 * generator.normal(size=(turns, len(HEADS)))
    heads = 1 / (1 + np.exp(-latent))
    heads[:, HEADS.index("sentiment")] = np.tanh(latent[:, HEADS.index("sentiment")])
    good = generator.random(turns) < 1 / (1 + np.exp(-(2.5 + 1.5 * latent @ LIKING)))
    return heads, good


def run_draws(draws: int, turns: int = 200, rate: float = 0.05, seed: int = 0) -> CountedDraws:
    """Calibrates on so many draws of that many rated turns, each turn of its own dialogue."""
    generator = np.random.default_rng(seed)
    heads, good = draw_heads(POPULATION, generator)
    outcomes = []
    for _ in range(draws):
        rated_heads, rated_good = draw_heads(turns, generator)
        rated = RatedHeads(rated_heads, rated_good, [str(place) for place in range(turns)], [()] * turns)
        made = calibrate_formula(rated, SHIPPED, rate=rate, source="simulated raters")
        low = compute_values(made.choice.formula, heads) < made.threshold.value
        outcomes.append(observe_draw(low, good, made))
    return tally_outcomes(outcomes, rate)


def observe_draw(low: NDArray[np.bool_], good: NDArray[np.bool_], made: ThresholdCalibration) -> Outcome:
    """A calibration's outcome on the other turns: which it calls low, and which are good."""
    return float(low[good].mean()), float(low[~good].mean()), not made.choice.keeps_order


def tally_outcomes(outcomes: Sequence[Outcome], rate: float) -> CountedDraws:
    """How often the promise of that rate was broken."""
    false_alarms, recall, reweighted = np.array(outcomes, dtype=np.float64).T
    return CountedDraws(
        draws=len(outcomes), broken=int((false_alarms > rate).sum()), false_alarms=float(false_alarms.mean()),
        recall=float(recall.mean()), reweighted=int(reweighted.sum()),
    )  # fmt: skip


def raters(
    draws: Annotated[int, typer.Option(min=1)] = 500,
    turns: Annotated[int, typer.Option(min=60, help="Rated turns in a draw.")] = 200,
    rate: Annotated[float, typer.Option(help="False alarms promised.")] = 0.05,
    seed: int = 0,
) -> None:
    """Prints how often the promise is broken."""
    typer.echo(describe_tally(run_draws(draws, turns, rate, seed), turns, rate))


def describe_tally(tally: CountedDraws, turns: int, rate: float) -> str:
    """The tally in a sentence."""
    return (
        f"{tally.draws} draws of {turns} turns: more than {rate:.0%} of good turns called low in {tally.broken} "
        f"({tally.broken / tally.draws:.1%}); mean false alarms {tally.false_alarms:.1%}, mean recall "
        f"{tally.recall:.1%}; new weights in {tally.reweighted}"
    )


def read_heads_of(loaded: LoadedScorer, turns: Sequence[LabelledTurn]) -> RatedHeads:
    """The bundle's heads of the turns, and people's judgements."""
    asked = [loaded.trim(make_turn(turn.context, turn.response)) for turn in turns]
    scores = score_turns(loaded, asked)
    return RatedHeads(
        np.array([[each.details[name] for name in HEADS] for each in scores]),
        np.array([is_good(turn) for turn in turns]),
        [turn.dialogue for turn in turns],
        [find_repeats(turn.context, turn.response) for turn in asked],
    )


def run_judged_draws(
    judged: RatedHeads,
    shipped: ValueFormula,
    draws: int,
    turns: int,
    *,
    rate: float = 0.05,
    seed: int = 0,
    whole_dialogues: bool = False,
) -> CountedDraws:
    """Calibrates on so many draws of that many turns, and counts on the other turns.

    `whole_dialogues` draws all turns of a dialogue until there are enough, as in a file of rated dialogues; without it
    each turn is drawn alone. A refused draw is not counted; ExporterError where all are refused.
    """
    generator = np.random.default_rng(seed)
    outcomes, refusal = [], ""
    for _ in range(draws):
        drawn = draw_turns(judged.dialogues, turns, generator, whole_dialogues=whole_dialogues)
        try:
            made = calibrate_formula(judged.take(drawn), shipped, rate=rate, source="judged turns")
        except ExporterError as error:
            refusal = str(error)
            continue
        others = judged.take(~drawn)
        values = made.choice.formula.values_of(weigh_rated(made.choice.formula, others))
        outcomes.append(observe_draw(values < made.threshold.value, others.good, made))
    if not outcomes:
        raise ExporterError(f"every draw was refused, the last one: {refusal}")
    return tally_outcomes(outcomes, rate)


def draw_turns(
    dialogues: Sequence[str], turns: int, generator: np.random.Generator, *, whole_dialogues: bool
) -> NDArray[np.bool_]:
    """The drawn turns: that many, or that many and the rest of the last dialogue."""
    if not whole_dialogues:
        drawn = np.zeros(len(dialogues), dtype=np.bool_)
        drawn[generator.choice(len(dialogues), turns, replace=False)] = True
        return drawn
    names, places, counts = np.unique(np.array(dialogues), return_inverse=True, return_counts=True)
    order = generator.permutation(len(names))
    enough = int(np.searchsorted(np.cumsum(counts[order]), turns)) + 1
    return np.isin(places, order[:enough])


def judged(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The folder with the data files.")],
    bundle: Annotated[str, typer.Option(help="A bundle of quality: a folder (with a /) or a name.")] = KIND,
    draws: Annotated[int, typer.Option(min=1)] = 500,
    turns: Annotated[int, typer.Option(min=60, help="Rated turns in a draw.")] = 200,
    rate: Annotated[float, typer.Option(help="False alarms promised.")] = 0.05,
    seed: int = 0,
) -> None:
    """Prints how often the promise is broken: by turns drawn alone, and by whole dialogues."""
    with reported_errors(ExporterError):
        loaded = load_bundles([bundle]).get(KIND)
        if loaded is None:
            raise ExporterError(f"{bundle} is not a bundle of the scorer {KIND}")
        judged = read_heads_of(loaded, read_dbdc3(data / DBDC3_FILE))
        shipped = QualityOptions.model_validate(loaded.bundle.manifest.options).value
        for whole in (False, True):
            tally = run_judged_draws(judged, shipped, draws, turns, rate=rate, seed=seed, whole_dialogues=whole)
            drawn = "whole dialogues" if whole else "turns alone"
            typer.echo(f"{loaded.bundle.manifest.reference}, {drawn}: {describe_tally(tally, turns, rate)}")


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(raters)
app.command()(judged)

if __name__ == "__main__":
    app()
