"""The end of the training: the parts' weights averaged, the head `overall` and the value fitted to what people said.

The average of the weights after each part agrees with people better than either (measured: docs/models/quality.md): the
first part is closer to what the encoder knew, the last one to what the made-up responses teach.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from turnscore_assessment.data.rated_turns import GOOD_FROM, THUMBS_SET, RatedTurn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.development import score_heads
from turnscore_exporters.quality.model import HEADS, OVERALL, RELEVANT, QualityModel, RowBuilder, read_features
from turnscore_exporters.quality.rated_training import scale_ratings
from turnscore_exporters.quality.value import ValueFormula, fit_probability, fit_weights, read_heads
from turnscore_exporters.training.encoders import Encoder

RIDGE = 0.05
LEAST_SPREAD = 0.1
"""Of the widest hidden unit: one that hardly moves gets no large weight, which would only multiply rounding. Chosen."""
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


def fit_overall(model: QualityModel, encoder: Encoder, turns: Sequence[RatedTurn]) -> None:
    """Sets the head `overall` to the ridge regression of the ratings' places in their sets on the hidden units."""
    builder = RowBuilder(encoder, model.settings.layout)
    pairs = [builder.first_pair(turn.context, turn.response) for turn in turns]
    hidden = read_features(model, pairs).double().numpy()
    places = np.array(scale_ratings(turns))
    weight = np.array([1 / sum(other.set_name == turn.set_name for other in turns) for turn in turns])
    center, spread = hidden.mean(0), hidden.std(0)
    spread = np.maximum(spread, LEAST_SPREAD * spread.max())
    design = (hidden - center) / spread
    gram = design.T @ (design * weight[:, None]) + OVERALL_RIDGE * np.eye(design.shape[1])
    found = np.linalg.solve(gram, design.T @ (weight * (places - 0.5)))
    slope = 4.0  # the sigmoid's slope at one half is a quarter
    with torch.no_grad():
        model.head.weight[OVERALL] = torch.tensor(slope * found / spread, dtype=torch.float32)
        model.head.bias[OVERALL] = float(-slope * (center / spread) @ found)


def fit_formula(model: QualityModel, encoder: Encoder, turns: Sequence[RatedTurn]) -> ValueFormula:
    """Weights and probability from the turns that several people rated from 1 to 5; ExporterError without any."""
    rated = [turn for turn in turns if turn.set_name != THUMBS_SET]
    names = sorted({turn.set_name for turn in rated})
    if not names:
        raise ExporterError("no turn that several people rated may be fitted on")
    by_set = {name: [turn for turn in rated if turn.set_name == name] for name in names}
    heads = {name: score_heads(model, encoder, members) for name, members in by_set.items()}
    ratings = {name: np.array([turn.rating for turn in members]) for name, members in by_set.items()}
    fitted = [name for name in HEADS if name != "overall"]
    weights = fit_weights([(heads[name], ratings[name]) for name in names], RIDGE, fitted)
    vector = np.array([weights.get(name, 0.0) for name in HEADS])
    scores = np.concatenate([read_heads(heads[name]) @ vector for name in names])
    slope, bias = fit_probability(scores, [bool(rating >= GOOD_FROM) for name in names for rating in ratings[name]])
    counts = ", ".join(f"{len(by_set[name])} turns of {name}" for name in names)
    return ValueFormula(
        weights={name: round(slope * weight, 4) for name, weight in weights.items()},
        bias=round(bias, 4),
        fitted_on=f"{counts}: weights, and the probability of a mean rating of at least {GOOD_FROM} of 5",
    )
