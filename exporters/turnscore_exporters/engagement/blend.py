"""The blend: a logistic regression on the heads' margins and the reply's length. Few weights, for few pairs."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from turnscore_exporters.engagement.model import EngagementModel, blend_columns

REGULARISATION = 0.3  # chosen: scikit-learn's C, on columns of variance one
FOLDS = 10


def read_columns(model: EngagementModel, features: Tensor) -> NDArray[np.float64]:
    """The blend's columns of pair features, [pairs, heads + 1]."""
    with torch.inference_mode():
        logits = torch.stack([head(features) for head in model.heads], dim=1)
        return np.asarray(blend_columns(logits, features).numpy(), dtype=np.float64)


def fit_blend(model: EngagementModel, features: Tensor, labels: Tensor) -> None:
    """Sets the model's blend from pairs that no head trained on; ValueError if the model has none."""
    if model.blend is None:
        raise ValueError("the model has no blend")
    weights, bias = _fit_weights(read_columns(model, features), labels.numpy())
    with torch.no_grad():
        model.blend.weight.zero_()
        model.blend.bias.zero_()
        model.blend.weight[1] = torch.from_numpy(weights)
        model.blend.bias[1] = bias


def cross_validate_blend(model: EngagementModel, features: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Log odds of each pair from a blend fitted to the other folds; the heads stay as they are."""
    columns, classes = read_columns(model, features), labels.numpy()
    found = np.zeros(len(classes))
    folds = StratifiedKFold(min(FOLDS, int(np.bincount(classes, minlength=2).min())), shuffle=True, random_state=0)
    for train, test in folds.split(columns, classes):
        weights, bias = _fit_weights(columns[train], classes[train])
        found[test] = columns[test] @ weights + bias
    return found


def _fit_weights(columns: NDArray[np.float64], classes: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
    """Weights and bias on the columns as they are; both classes weigh the same."""
    center, scale = columns.mean(0), np.maximum(columns.std(0), 1e-6)
    regression = LogisticRegression(C=REGULARISATION, class_weight="balanced", max_iter=1000)
    regression.fit((columns - center) / scale, classes)
    weights = regression.coef_[0] / scale
    return weights, float(regression.intercept_[0] - weights @ center)
