"""`python -m turnscore_exporters.calibration.judged_draws`: how often a threshold breaks its promise among real turns.

Draws of DBDC3's turns, which 30 people judged each, calibrate a bundle of quality as `turnscore-calibrate` does; the
false alarms are counted among the turns that were not drawn. Nothing of the bundle was fitted on DBDC3.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from turnscore_assessment.agreement.bundles import load_bundles, make_turn, score_turns
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.data.labelled_turns import DBDC3_FILE, RatedTurn, read_dbdc3
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.quality import QualityOptions, ValueFormula
from turnscore_core.scorers.quality_rows import HEADS
from turnscore_core.scorers.turn_warnings import find_repeats

from turnscore_exporters.calibration.calibration import calibrate_formula
from turnscore_exporters.calibration.recalibration import RatedHeads, weigh_rated
from turnscore_exporters.calibration.shipped_threshold import KIND, is_good
from turnscore_exporters.calibration.simulation import Tally, describe_tally, observe_draw, tally_outcomes
from turnscore_exporters.errors import ExporterError


def read_heads_of(loaded: LoadedScorer, turns: Sequence[RatedTurn]) -> RatedHeads:
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
) -> Tally:
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


def main(
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


if __name__ == "__main__":
    typer.run(main)
