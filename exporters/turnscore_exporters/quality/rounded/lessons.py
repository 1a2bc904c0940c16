"""Training with the int8 rounding in it: the weights are moved until their rounded form answers as they first did.

A step of int8 is larger than what a late training changes: rounding takes such changes back, and not at random where
the first weights lay on the grid already (recovered ones do). Here the rounded model learns the first one's vectors
and answers. Nothing of people's ratings comes in.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from turnscore_exporters.quality.model import SENTIMENT, QualityModel, RowBuilder
from turnscore_exporters.quality.rounded.layers import find_smoothing, put_rounding_in, take_rounding_out
from turnscore_exporters.quality.spoken_turns import SpokenTurn
from turnscore_exporters.quality.taught.lessons import (
    compare_candidates,
    draw_candidates,
    fingerprint,
    read_batch,
)
from turnscore_exporters.quality.taught.turns import TaughtBatch, draw_batches, list_texts
from turnscore_exporters.training.checkpoint_files import Factors
from turnscore_exporters.training.encoders import Encoder
from turnscore_exporters.training.loop import LoopSettings, WeightAverage, run_loop

SENTIMENT_WEIGHT = 2.0
"""Of the head that is no logit: it moves between -1 and 1."""
SAVE_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class RoundingRecipe:
    """How long and how fast. Chosen; docs/models/quality.md has what it is worth."""

    batch: int = 32
    others: int = 15
    """Responses of other turns of the batch that each context is compared with, beside its own."""
    epochs: float = 0.3
    learning_rate: float = 2e-5
    vector_weight: float = 1.0
    """Of the squared difference of the row vectors, beside that of the answers."""
    made_up_share: float = 0.25
    average_decay: float = 0.98
    warm_up_share: float = 0.05


def compute_rounding_loss(
    model: QualityModel, first: QualityModel, builder: RowBuilder, batch: TaughtBatch, recipe: RoundingRecipe
) -> Tensor:
    """How far the rounded model's row vectors and answers are from the first one's."""
    rows, responses, contexts = read_batch(model, builder, batch)
    candidates = draw_candidates(len(batch.turns), recipe.others)
    with torch.no_grad():
        first_rows, _, _ = read_batch(first, builder, batch, half=False)
        wanted = first.compare(first_rows, responses, contexts)
        compared = compare_candidates(first, first_rows, responses, contexts, candidates)
    found = model.compare(rows, responses, contexts)
    answers = functional.mse_loss(found, wanted)
    answers = answers + SENTIMENT_WEIGHT * functional.mse_loss(found[:, SENTIMENT], wanted[:, SENTIMENT])
    answers = answers + functional.mse_loss(compare_candidates(model, rows, responses, contexts, candidates), compared)
    width = (rows.shape[-1] - 1) // 2
    means = width * functional.mse_loss(rows[:, :width], first_rows[:, :width])
    highest = functional.mse_loss(rows[:, width:], first_rows[:, width:])
    return answers + recipe.vector_weight * (means + highest)


def learn_rounding(
    model: QualityModel,
    encoder: Encoder,
    turns: Sequence[SpokenTurn],
    people: Sequence[SpokenTurn],
    recipe: RoundingRecipe,
    state_path: Path | None = None,
    seed: int = 0,
) -> Factors:
    """Trains the model's encoder in place, or goes on where `state_path` stopped; returns the factors to export with.

    The weights are rounded ones at the end. Heads and embeddings stay: the graph rounds embeddings row by row, which
    costs nothing.
    """
    first = copy.deepcopy(model).eval().requires_grad_(False)
    builder = RowBuilder(encoder, model.settings.layout)
    builder.add(list_texts(turns))
    batches = draw_batches(turns, people, recipe.batch, recipe.epochs, recipe.made_up_share, seed)
    smoothing = find_smoothing(model.encoder)
    model.eval().requires_grad_(False)
    model.encoder.encoder.requires_grad_(True)
    put_rounding_in(model.encoder, smoothing)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=recipe.learning_rate, betas=(0.9, 0.98))
    average = WeightAverage(recipe.average_decay, len(batches) // 2)
    loop = LoopSettings(
        steps=len(batches),
        run_key=f"rounding {recipe} {seed} {len(turns)} {fingerprint(first)}",
        seed=seed,
        warm_up_steps=max(1, int(recipe.warm_up_share * len(batches))),
        save_every=SAVE_EVERY,
        description="int8 rounding",
    )
    run_loop(
        model,
        optimizer,
        lambda step: compute_rounding_loss(model, first, builder, batches[step], recipe),
        loop,
        state_path,
        average,
    )
    average.put_into(model)
    take_rounding_out(model.encoder)
    model.requires_grad_(True)
    return smoothing
