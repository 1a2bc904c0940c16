"""The end of the training: the parts' weights averaged, the head `overall` and the value fitted to what people said.

The average of the weights after each part agrees with people better than either (measured: docs/models/quality.md): the
first part is closer to what the encoder knew, the last one to what the made-up responses teach.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from turnscore_assessment.data.rated_turns import GOOD_FROM, THUMBS_SET, RatedTurn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.development import score_heads
from turnscore_exporters.quality.model import HEADS, OVERALL, RELEVANT, QualityModel, RowBuilder, read_features
from turnscore_exporters.quality.rated_training import scale_ratings
from turnscore_exporters.quality.value import ValueFormula, fit_probability, fit_weights, read_heads
from turnscore_exporters.training.encoders import Encoder

Floats = NDArray[np.float64]

WEIGHED = ("relevant", "sound", "sentiment", "overall")
"""The heads that make the value. Chosen on the sets for it: `engaging` and `goes_on` beside them cost agreement."""
RIDGE = 0.3
"""Of these weights, towards heads that count alike. Chosen likewise, and for its price.

A larger one agrees with people a little better (.493 in the mean at 0.15, .495 at 0.3, .500 at 1, .501 at 5), but
weighs `relevant` less and `sentiment` more: parrots of the user are at the 36th percentile at 0.3, at the 45th at 1.
"""
REPEATS = {"repeats_user": 2.0, "repeats_itself": 1.1}
"""Taken from the weighed heads of a turn that carries the warning.

Measured for `repeats_itself`: beside the weighed heads it lowers the log odds of a thumb up by 1.2 on the ConvAI thumbs
that are fitted on, by 0.8 on the others, and of "no breakdown" by 1.1 on DBDC3. Chosen for `repeats_user`, which 33
rated turns carry, too few to measure: a parrot of the user comes to the 6th percentile.
"""
LEAST_SPREAD = 0.1
"""Of the widest hidden unit: one that hardly moves gets no large weight, which would only multiply rounding. Chosen."""
SIGMOID_SLOPE = 4.0
"""One over the sigmoid's slope at one half: places follow the logit divided by it."""
FOLDS = 5
"""Of the fitted dialogues: what `overall` says of a turn is taken from a fit to the other folds. Chosen."""
OVERALL_RIDGE = 0.3
"""Of the head `overall` on the standardized hidden units, per unit of the fitted turns' variance. Chosen."""


def average_models(models: Sequence[QualityModel]) -> QualityModel:
    """The first model with the mean of all models' weights; they must come from one start."""
    states = [model.state_dict() for model in models]
    mean = {
        name: torch.stack([state[name] for state in states]).mean(0) if weight.dtype.is_floating_point else weight
        for name, weight in states[0].items()
    }
    models[0].load_state_dict(mean)
    return models[0].eval()


def balance_relevant(model: QualityModel, made_up: int) -> None:
    """Moves `relevant` so that 0.5 means: as likely to fit as not, where fitting and made-up responses are as many.

    It was trained beside `made_up` made-up responses for each real one.
    """
    with torch.no_grad():
        model.head.bias[RELEVANT] += math.log(made_up)


def fit_overall(model: QualityModel, encoder: Encoder, turns: Sequence[RatedTurn]) -> Floats:
    """Sets the head `overall` to the ridge regression of the ratings' places in their sets on the hidden units.

    Returns the head's logit for each turn from a fit to the turns of other dialogues, for who fits anything on top;
    ExporterError where there are too few.
    """
    builder = RowBuilder(encoder, model.settings.layout)
    pairs = [builder.first_pair(turn.context, turn.response) for turn in turns]
    hidden = read_features(model, pairs).double().numpy()
    places = np.array(scale_ratings(turns))
    weight = np.array([1 / sum(other.set_name == turn.set_name for other in turns) for turn in turns])
    slope, bias = _regress(hidden, places, weight)
    with torch.no_grad():
        model.head.weight[OVERALL] = torch.tensor(slope, dtype=torch.float32)
        model.head.bias[OVERALL] = bias
    folds = np.array([fold_of(turn.dialogue) for turn in turns])
    unseen = np.zeros(len(turns))
    for fold in sorted(set(folds)):
        own = folds == fold
        if own.all():
            raise ExporterError("the rated turns to fit to are of too few dialogues")
        slope, bias = _regress(hidden[~own], places[~own], weight[~own])
        unseen[own] = hidden[own] @ slope + bias
    return unseen


def _regress(hidden: Floats, places: Floats, weight: Floats) -> tuple[Floats, float]:
    """Slopes [hidden units] and bias of the logit that the places follow."""
    center, spread = hidden.mean(0), hidden.std(0)
    spread = np.maximum(spread, LEAST_SPREAD * spread.max())
    design = (hidden - center) / spread
    gram = design.T @ (design * weight[:, None]) + OVERALL_RIDGE * np.eye(design.shape[1])
    found = np.linalg.solve(gram, design.T @ (weight * (places - 0.5)))
    slope = SIGMOID_SLOPE * found / spread
    return slope, float(-center @ slope)


def fold_of(dialogue: str) -> int:
    """Which of FOLDS the dialogue's turns are in, by its name alone."""
    return hashlib.sha256(f"fold {dialogue}".encode()).digest()[0] % FOLDS


def fit_formula(
    model: QualityModel, encoder: Encoder, turns: Sequence[RatedTurn], overall: Floats | None = None
) -> ValueFormula:
    """Weights and probability from the turns that several people rated from 1 to 5; ExporterError without any.

    `overall` are that head's logits [turns], which must not come from a fit to the same turns; None leaves it out.
    """
    by_set: dict[str, list[int]] = {}
    for place, turn in enumerate(turns):
        if turn.set_name != THUMBS_SET:
            by_set.setdefault(turn.set_name, []).append(place)
    if not by_set:
        raise ExporterError("no turn that several people rated may be fitted on")
    names = sorted(by_set)
    heads = {name: score_heads(model, encoder, [turns[place] for place in by_set[name]]) for name in names}
    if overall is not None:
        for name in names:
            heads[name][:, OVERALL] = 1 / (1 + np.exp(-overall[by_set[name]]))
    ratings = {name: np.array([turns[place].rating for place in by_set[name]]) for name in names}
    fitted = [name for name in WEIGHED if name != "overall" or overall is not None]
    weights = fit_weights([(heads[name], ratings[name]) for name in names], RIDGE, fitted)
    vector = np.array([weights.get(name, 0.0) for name in HEADS])
    scores = np.concatenate([read_heads(heads[name]) @ vector for name in names])
    slope, bias = fit_probability(scores, [bool(rating >= GOOD_FROM) for name in names for rating in ratings[name]])
    counts = ", ".join(f"{len(by_set[name])} turns of {name}" for name in names)
    return ValueFormula(
        weights={name: round(slope * weight, 4) for name, weight in weights.items()},
        bias=round(bias, 4),
        repeats=REPEATS,
        fitted_on=f"{counts}: weights, and the probability of a mean rating of at least {GOOD_FROM} of 5",
    )
