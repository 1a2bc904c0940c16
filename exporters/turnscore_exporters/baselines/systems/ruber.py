"""RUBER (Tao et al. 2018): blends how well a reply fits its query with how near it is to a reference, both scaled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnscore_exporters.baselines.encoders.word_vectors import WordVectors
from turnscore_exporters.baselines.material.asked import Asked, Floats
from turnscore_exporters.baselines.material.exchanges import Exchange, split_words
from turnscore_exporters.baselines.material.samplers import Negatives
from turnscore_exporters.baselines.systems.networks import QUERY_WORDS, REPLY_WORDS, RuberNetwork, Texts, hinge_loss
from turnscore_exporters.baselines.systems.scales import TrainingScale, blend_mean, blend_min
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

# Specified: Adam, 1e-4, 128 pairs a step.
LEARNING_RATE, BATCH_SIZE = 1e-4, 128
SCORED_AT_ONCE = 256
UNREFERENCED, REFERENCED, BLEND_MIN, BLEND_MEAN = "unreferenced", "referenced", "min", "mean"

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Ruber:
    """The trained system. A turn without references has the unreferenced score alone."""

    network: RuberNetwork
    vectors: WordVectors
    unreferenced: TrainingScale
    referenced: TrainingScale

    def score(self, asked: Sequence[Asked]) -> dict[str, Floats]:
        """`unreferenced`; where every turn has references also `referenced`, and `min` and `mean` of both."""
        fits = self.unreferenced.apply(
            score_network(self.network, self.vectors, [(a.query, a.response) for a in asked])
        )
        if not asked or not all(each.references for each in asked):
            return {UNREFERENCED: fits}
        near = self.referenced.apply([compare_references(self.vectors, a.response, a.references) for a in asked])
        return {
            UNREFERENCED: fits,
            REFERENCED: near,
            BLEND_MIN: blend_min(fits, near),
            BLEND_MEAN: blend_mean(fits, near),
        }


def train_network(
    network: RuberNetwork,
    exchanges: Sequence[Exchange],
    negatives: Negatives,
    vectors: WordVectors,
    settings: LoopSettings,
    *,
    learning_rate: float = LEARNING_RATE,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the ranking loss; each reply's wrong counterpart is drawn anew each epoch."""
    batches = -(-len(exchanges) // BATCH_SIZE)

    def step_loss(step: int) -> Tensor:
        chosen = choose_batch(len(exchanges), BATCH_SIZE, step, settings.seed)
        wrong = [exchanges[negatives.draw(index, step // batches)].reply for index in chosen]
        query = read_texts(vectors, [exchanges[index].query for index in chosen], QUERY_WORDS)
        replies = read_texts(vectors, [*(exchanges[index].reply for index in chosen), *wrong], REPLY_WORDS)
        return hinge_loss(*network(query, replies).chunk(2))

    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
    run_loop(network, optimizer, step_loss, settings, state_path)
    network.eval()


def fit_scales(
    network: RuberNetwork, vectors: WordVectors, exchanges: Sequence[Exchange], wrong: Callable[[int], int]
) -> tuple[TrainingScale, TrainingScale]:
    """The scales of both scores, from training exchanges with their true and with wrong replies.

    The true reply is the reference of the wrong one alone: compared with itself it would score 1.
    """
    others = [exchanges[wrong(index)].reply for index in range(len(exchanges))]
    pairs = [(each.query, each.reply) for each in exchanges]
    pairs += [(each.query, other) for each, other in zip(exchanges, others, strict=True)]
    near = [compare_references(vectors, other, (each.reply,)) for each, other in zip(exchanges, others, strict=True)]
    return TrainingScale.fit(score_network(network, vectors, pairs)), TrainingScale.fit(near)


def score_network(network: RuberNetwork, vectors: WordVectors, pairs: Sequence[Pair]) -> list[float]:
    """The network's raw score of each (query, reply)."""
    scores: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(pairs), SCORED_AT_ONCE):
            chosen = pairs[start : start + SCORED_AT_ONCE]
            query = read_texts(vectors, [pair[0] for pair in chosen], QUERY_WORDS)
            scores += network(query, read_texts(vectors, [pair[1] for pair in chosen], REPLY_WORDS)).tolist()
    return scores


def compare_references(vectors: WordVectors, reply: str, references: Sequence[str]) -> float:
    """The greatest cosine of the reply's and a reference's pooled words."""
    own = pool_words(vectors, reply)
    return max(_cosine(own, pool_words(vectors, each)) for each in references)


def pool_words(vectors: WordVectors, text: str) -> NDArray[np.float32]:
    """The maximum and the minimum of each dimension over the text's words, [2 width]; zeros without words."""
    words = vectors.of(split_words(text))
    if not len(words):
        return np.zeros(2 * vectors.width, dtype=np.float32)
    return np.concatenate([words.max(0), words.min(0)])


def read_texts(vectors: WordVectors, texts: Sequence[str], most_words: int) -> Texts:
    """The word vectors of each text's first words."""
    return Texts.of([vectors.of(split_words(text)[:most_words]) for text in texts])


def _cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length > 0 else 0.0
