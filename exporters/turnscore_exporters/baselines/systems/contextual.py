"""Contextualised RUBER (Ghazarian et al. 2019): a frozen BERT encodes query and reply, an MLP scores the pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.correlations import compute_auc

from turnscore_exporters.baselines.encoders.text_vectors import FrozenVectors
from turnscore_exporters.baselines.material.asked import Asked, Floats
from turnscore_exporters.baselines.material.exchanges import Exchange
from turnscore_exporters.baselines.material.samplers import Negatives
from turnscore_exporters.baselines.systems.networks import PairHead
from turnscore_exporters.training.loop import BestWeights, LoopSettings, choose_batch, run_loop

# Specified: a port's released code: Adam 1e-3, weight decay 1e-4, 256 pairs a step.
LEARNING_RATE, WEIGHT_DECAY, BATCH_SIZE = 1e-3, 1e-4, 256
PONE_DROPOUT = 0.5
SCORED_AT_ONCE = 4096
"""Pairs whose vectors are stacked together: PONE judges several hundred thousand. Chosen."""


class PairNetwork(nn.Module):
    """Standardises both vectors by the training's mean and spread, then the head."""

    center: Tensor
    scale: Tensor

    def __init__(self, width: int, *, is_pone: bool = False) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.head = PairHead(width, nn.ReLU, PONE_DROPOUT) if is_pone else PairHead(width)

    def fit_scale(self, vectors: Tensor) -> None:
        """Sets center and scale from training vectors [texts, width]."""
        self.center.copy_(vectors.mean(0))
        self.scale.copy_(vectors.std(0).clamp_min(1e-6) if len(vectors) > 1 else torch.ones_like(self.scale))

    def forward(self, query: Tensor, reply: Tensor) -> Tensor:
        """Logits [pairs]."""
        logits: Tensor = self.head((query - self.center) / self.scale, (reply - self.center) / self.scale)
        return logits


@dataclass(frozen=True, slots=True)
class Judgement:
    """A pair and whether it fits."""

    query: str
    reply: str
    fits: float


@dataclass(frozen=True, kw_only=True)
class Contextual:
    """The trained system; `name` is the name of its only score."""

    name: str
    network: PairNetwork
    vectors: FrozenVectors

    def score(self, asked: Sequence[Asked]) -> dict[str, Floats]:
        """The probability that the reply fits, unscaled."""
        return {self.name: score_network(self.network, self.vectors, [(each.query, each.response) for each in asked])}


def train_network(
    network: PairNetwork,
    exchanges: Sequence[Exchange],
    negatives: Negatives,
    vectors: FrozenVectors,
    settings: LoopSettings,
    *,
    learning_rate: float = LEARNING_RATE,
    extra: Sequence[Judgement] = (),
    best: BestWeights | None = None,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the cross entropy: half true replies, half wrong ones that are drawn anew each epoch.

    Each step also takes as many of `extra`, where there are any, as it takes pairs. With `best` the weights are those
    that it keeps, else the last.
    """

    def step_loss(step: int) -> Tensor:
        judged = compose_step(exchanges, negatives, extra, step, settings.seed)
        logits = network(vectors.of([each.query for each in judged]), vectors.of([each.reply for each in judged]))
        return functional.binary_cross_entropy_with_logits(logits, torch.tensor([each.fits for each in judged]))

    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY, fused=True)
    run_loop(network, optimizer, step_loss, settings, state_path, best)
    if best is not None:
        best.put_into(network)
    network.eval()


def choose_by_auc(
    network: PairNetwork,
    vectors: FrozenVectors,
    exchanges: Sequence[Exchange],
    wrong: Sequence[str],
    settings: LoopSettings,
) -> BestWeights:
    """Keeps the weights with the greatest AUC of the exchanges' replies against as many `wrong` ones."""
    pairs = [(each.query, each.reply) for each in exchanges]
    pairs += [(each.query, other) for each, other in zip(exchanges, wrong, strict=True)]
    labels = [1] * len(exchanges) + [0] * len(wrong)

    def measure() -> float:
        network.eval()
        found = compute_auc(score_network(network, vectors, pairs), labels)
        network.train()
        return found

    return BestWeights(measure, settings.steps)


def compose_step(
    exchanges: Sequence[Exchange], negatives: Negatives, extra: Sequence[Judgement], step: int, seed: int
) -> list[Judgement]:
    """True replies, as many wrong ones to the same queries, and as many of `extra`."""
    half = BATCH_SIZE // 2
    epoch = step // -(-len(exchanges) // half)
    chosen = choose_batch(len(exchanges), half, step, seed)
    true = [Judgement(exchanges[index].query, exchanges[index].reply, 1.0) for index in chosen]
    drawn = [(index, negatives.draw(index, epoch)) for index in chosen]
    wrong = [Judgement(exchanges[index].query, exchanges[other].reply, 0.0) for index, other in drawn]
    more = [extra[index] for index in choose_batch(len(extra), half, step, seed)] if extra else []
    return [*true, *wrong, *more]


def score_network(network: PairNetwork, vectors: FrozenVectors, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The probability that each (query, reply) fits; without a query the reply stands for both, as in the service."""
    if not pairs:
        return np.zeros(0)
    queries, replies = [query.strip() or reply for query, reply in pairs], [reply for _, reply in pairs]
    vectors.add((*queries, *replies))
    with torch.inference_mode():
        found = [
            network(vectors.of(said), vectors.of(answered)).sigmoid()
            for said, answered in zip(_cut(queries), _cut(replies), strict=True)
        ]
    return np.asarray(torch.cat(found).numpy(), dtype=np.float64)


def _cut(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + SCORED_AT_ONCE] for start in range(0, len(texts), SCORED_AT_ONCE)]
