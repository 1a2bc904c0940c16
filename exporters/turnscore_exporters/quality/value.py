"""The one number: weights of the heads and the calibrated probability that people call a turn good.

The value is the sigmoid of a bias plus the weighted heads, each probability as its logit, the sentiment as it is, less
what is taken from a turn that repeats another. The weights are fitted to ratings of turns, by ridge regression inside
each set, so that sets with other scales and questions count alike; the sigmoid is then fitted, on other turns, to which
ones were called good.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from turnscore_assessment.data import dialogues
from turnscore_assessment.data.dialogues import LabelledTurn, Spoken
from turnscore_assessment.figures import Floats
from turnscore_core.scorers.quality import HEADS, ValueFormula, read_heads

from turnscore_exporters.calibration.recalibration import fit_probability
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import read_json
from turnscore_exporters.quality.model import QualityModel, RowBuilder, score_rows
from turnscore_exporters.training.encoders import Encoder

VALUE_FILE = "value.json"
# The heads that make the value. Measured: `fluent` and `sentiment` carry to sets that people rated, `engaging` finds
# fillers and loses sets of old systems.
WEIGHED = ("relevant", "fluent", "engaging", "sentiment", "overall")
RIDGE = 0.03  # Of their weights, towards heads that count alike.
CALIBRATED = ("judged-live", "judged-modern")  # The sets whose turns make the probability.
# Taken from the weighed heads of a turn that carries the warning.
#
# `repeats_itself` is measured on 1.2.0: it lowered the log odds of a thumb up by 1.2 on ConvAI's thumbs that were
# fitted on, by 0.8 on the others, and of "no breakdown" by 1.1 on DBDC3. Too few rated turns carry `repeats_user` to
# measure.
REPEATS = {"repeats_user": 2.0, "repeats_itself": 1.1}

Asked = tuple[Sequence[Spoken], str]  # A context, oldest turn first, and the response.


class FittedFormula(ValueFormula):
    """A trained formula. `curve` is left to recalibration on a deployment's own turns."""

    fitted_on: str = ""


def fit_weights(sets: Sequence[tuple[Floats, Floats]], ridge: float, names: Sequence[str] = HEADS) -> dict[str, float]:
    """Weights of the heads, none below 0, from each set's heads [turns, heads] and ratings [turns].

    Every set counts alike: its ratings and heads are centred and its ratings scaled to one standard deviation. The
    penalty is on the heads scaled over all sets, towards equal weights.
    """
    places = [HEADS.index(name) for name in names]
    columns = [read_heads(heads)[:, places] for heads, _ in sets]
    spread = np.vstack([each - each.mean(0) for each in columns]).std(0)
    design = np.vstack([(each - each.mean(0)) / spread / np.sqrt(len(each)) for each in columns])
    wanted = np.concatenate([(y - y.mean()) / y.std() / np.sqrt(len(y)) for _, y in sets])
    prior = np.full(len(places), 1 / len(places))
    pull = np.sqrt(ridge) * np.eye(len(places))
    found, _ = nnls(np.vstack([design, pull]), np.concatenate([wanted, pull @ prior]))
    return {name: float(weight / scale) for name, weight, scale in zip(names, found, spread, strict=True)}


def score_heads(model: QualityModel, encoder: Encoder, turns: Sequence[Asked]) -> Floats:
    """The heads [turns, heads] of contexts and responses."""
    heads, _ = score_rows(model, RowBuilder(encoder, model.settings.layout).build(turns))
    return np.asarray(heads.double().numpy())


def fit_value(score: Callable[[Sequence[Asked]], Floats], folder: Path) -> FittedFormula:
    """Weights from the judged part `choose` and ratings that may be fitted on, the probability from `calibrate`.

    `score` gives the heads [turns, heads] of contexts and responses. ExporterError where no judged turns are there.
    """
    weighed = dialogues.read_judged_turns(folder, ["choose"])
    if (folder / dialogues.RATINGS_FILE).exists():
        rated = dialogues.read_rated_turns(folder / dialogues.RATINGS_FILE)
        weighed += [turn for turn in rated if turn.is_fitted_on and turn.set_name != dialogues.DAILYDIALOG]
    calibrated = [turn for turn in dialogues.read_judged_turns(folder, ["calibrate"]) if turn.set_name in CALIBRATED]
    if not weighed or not calibrated:
        raise ExporterError(f"{folder}: has no {dialogues.TURNS_FILE} to fit the value to")
    by_set: dict[str, list[LabelledTurn]] = {}
    for turn in weighed:
        by_set.setdefault(turn.set_name, []).append(turn)

    def heads_of(turns: Sequence[LabelledTurn]) -> Floats:
        return score([(turn.context, turn.response) for turn in turns])

    sets = [(heads_of(own), np.array([turn.rating for turn in own])) for own in by_set.values()]
    weights = fit_weights(sets, RIDGE, WEIGHED)
    vector = np.array([weights.get(name, 0.0) for name in HEADS])
    good = [bool(turn.rating >= dialogues.GOOD_FROM) for turn in calibrated]
    slope, bias = fit_probability(read_heads(heads_of(calibrated)) @ vector, good)
    counts = ", ".join(f"{len(own)} turns of {name}" for name, own in sorted(by_set.items()))
    source = (
        f"weights: {counts}; probability of a mean rating of at least {dialogues.GOOD_FROM} of 5: {len(calibrated)} "
    )
    return FittedFormula.model_validate(
        {
            "weights": {name: round(slope * weight, 4) for name, weight in weights.items()},
            "bias": round(bias, 4),
            "repeats": REPEATS,
            "fitted_on": f"{source}other turns of {' and '.join(CALIBRATED)}",
        }
    )


def read_formula(folder: Path) -> FittedFormula:
    """The formula next to a checkpoint."""
    return FittedFormula.model_validate(read_json(folder / VALUE_FILE))
