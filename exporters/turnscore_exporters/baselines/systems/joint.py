"""A BERT or RoBERTa that scores context and response as one row: USR's dialogue retrieval, and 3P.

USR (Mehri and Eskenazi 2020) trains it on true and random replies; Ghazarian et al. 2022 (3P) on turns that people
called appropriate or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from turnscore_exporters.baselines.encoders.checkpoints import PairCheckpoint, split_by_length
from turnscore_exporters.baselines.material.asked import Asked, Floats
from turnscore_exporters.baselines.material.exchanges import Exchange
from turnscore_exporters.baselines.material.samplers import Negatives
from turnscore_exporters.baselines.systems.contextual import Judgement
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

WEIGHT_DECAY = 0.01
SCORED_AT_ONCE = 64

Draw = Callable[[int], list[Judgement]]
"""Gives the judgements of a step."""


@dataclass(frozen=True, kw_only=True)
class Joint:
    """The trained system; `name` is the name of its only score."""

    name: str
    checkpoint: PairCheckpoint

    def score(self, asked: Sequence[Asked]) -> dict[str, Floats]:
        return {self.name: score_pairs(self.checkpoint, [(each.query, each.response) for each in asked])}


def train_joint(
    checkpoint: PairCheckpoint,
    draw: Draw,
    settings: LoopSettings,
    *,
    learning_rate: float,
    class_weight: float = 1.0,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the cross entropy of the judgements that `draw` gives; fitting ones weigh `class_weight`."""
    model = checkpoint.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY, fused=True)

    def step_loss(step: int) -> Tensor:
        chosen = draw(step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = read_groups(checkpoint, [(each.query, each.reply) for each in chosen])
        return judgement_loss(logits.float(), [each.fits for each in chosen], class_weight)

    model.train()
    run_loop(model, optimizer, step_loss, settings, state_path)
    model.eval()


def judgement_loss(logits: Tensor, fits: Sequence[float], class_weight: float) -> Tensor:
    """The mean cross entropy, fitting judgements weighted by `class_weight`."""
    weight = torch.tensor(class_weight)
    return functional.binary_cross_entropy_with_logits(logits, torch.tensor(fits), pos_weight=weight)


def draw_retrieval(exchanges: Sequence[Exchange], negatives: Negatives, batch_size: int, seed: int) -> Draw:
    """Half true replies, half wrong ones to the same queries."""
    half = max(1, batch_size // 2)
    batches = -(-len(exchanges) // half)

    def draw(step: int) -> list[Judgement]:
        found = []
        for index in choose_batch(len(exchanges), half, step, seed):
            other = negatives.draw(index, step // batches)
            found.append(Judgement(exchanges[index].query, exchanges[index].reply, 1.0))
            found.append(Judgement(exchanges[index].query, exchanges[other].reply, 0.0))
        return found

    return draw


def draw_annotated(judgements: Sequence[Judgement], batch_size: int, seed: int) -> Draw:
    """The judgements in epochs of random order."""
    return lambda step: [judgements[index] for index in choose_batch(len(judgements), batch_size, step, seed)]


def read_logits(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Tensor:
    """How well each (said, response) fits, [pairs]: the logit, or the second class's margin."""
    return margin_of(checkpoint.model(**_collate(checkpoint, pairs)).logits)


def read_groups(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Tensor:
    """What `read_logits` gives, rows of like length read together."""
    groups = split_by_length(checkpoint.model, _collate(checkpoint, pairs))
    found = torch.cat([margin_of(checkpoint.model(**inputs).logits) for _, inputs in groups])
    return found[torch.cat([places for places, _ in groups]).argsort()]


def margin_of(logits: Tensor) -> Tensor:
    """Turns [pairs, 1] or [pairs, 2] into [pairs]."""
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def _collate(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    rows = checkpoint.lay_out(pairs)
    return checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])


def score_pairs(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The probability of each pair, in batches of like length."""
    scores = np.zeros(len(pairs))
    order = sorted(range(len(pairs)), key=lambda index: sum(map(len, pairs[index])))
    with torch.inference_mode():
        for start in range(0, len(order), SCORED_AT_ONCE):
            chosen = order[start : start + SCORED_AT_ONCE]
            scores[chosen] = read_logits(checkpoint, [pairs[index] for index in chosen]).sigmoid().numpy()
    return scores
