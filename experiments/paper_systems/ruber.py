"""RUBER (Tao et al. 2018): word vectors, networks, and both scores on training scales; Bi-RNN's network."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Floats
from turnscore_assessment.references.vector_metrics import read_word_vectors
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.pair_models.models import PairHead
from turnscore_exporters.training.encoders import Encoder
from turnscore_exporters.training.loop import LoopSettings, choose_batch, train

from paper_systems.data import EvalTurn, RandomNegatives, split_words

WordArray = NDArray[np.float32]
Texts = tuple[Tensor, Tensor]  # Word vectors of texts, padded, [texts, words, width], and each text's number of words.


class WordVectors(Protocol):
    name: str
    width: int

    def of(self, words: Sequence[str]) -> WordArray:
        """[words, width]; 0 for an unknown word."""


class FileVectors:
    """The vectors of a file, for the wanted words alone."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        """Reads GloVe's form, or word2vec's text form. Raises ExporterError or ReferencesError naming the file."""
        self.name = path.name
        known = read_word_vectors(path, set(wanted)).known
        self._table = {word: np.asarray(vector, dtype=np.float32) for word, vector in known.items()}
        if not self._table:
            raise ExporterError(f"{path}: has a vector for none of {len(wanted)} words")
        self.width = len(next(iter(self._table.values())))
        self._unknown = np.zeros(self.width, dtype=np.float32)

    def of(self, words: Sequence[str]) -> WordArray:
        rows = [self._table.get(word, self._unknown) for word in words]
        return np.stack(rows) if rows else np.zeros((0, self.width), dtype=np.float32)


class PieceVectors:
    """A word's vector is the mean of its pieces' in a BERT's word table: static, and no word is unknown.

    The table is scaled to a spread of 1, near word2vec's: a BERT's own is some twenty times smaller, and would slow a
    network's start as much.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.name = f"the word table of {encoder.name}"
        self._encoder = encoder
        table = encoder.model.embeddings.word_embeddings.weight.detach().numpy()
        self._table: WordArray = np.asarray(table / table.std(), dtype=np.float32)
        self.width = int(self._table.shape[1])
        self._known: dict[str, WordArray] = {}

    def of(self, words: Sequence[str]) -> WordArray:
        fresh = [word for word in dict.fromkeys(words) if word not in self._known]
        for word, pieces in zip(fresh, self._encoder.tokenize_bare(fresh), strict=True):
            self._known[word] = self._table[pieces].mean(0) if pieces else np.zeros(self.width, dtype=np.float32)
        rows = [self._known[word] for word in words]
        return np.stack(rows) if rows else np.zeros((0, self.width), dtype=np.float32)


# Specified: RUBER (Tao et al. 2018, released code).
GRU_UNITS = 128
QUERY_WORDS, REPLY_WORDS = 20, 30
MARGIN = 0.5
# Specified: Ghazarian et al. 2020, one layer MLP with tanh, dropout 0.8.
BI_RNN_UNITS, BI_RNN_DROPOUT = 64, 0.8


class WordReader(nn.Module):
    """A bidirectional GRU over word vectors; padding is never read."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, units, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The last states of both directions [texts, 2 units] of [texts, words, width]."""
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        _, states = self.gru(packed)
        return torch.cat([states[0], states[1]], dim=-1)


class RuberNetwork(nn.Module):
    """RUBER's unreferenced score: one GRU per side, and the head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.reply = WordReader(width, GRU_UNITS), WordReader(width, GRU_UNITS)
        self.head = PairHead(2 * GRU_UNITS)

    def forward(self, query: Texts, reply: Texts) -> Tensor:
        """Scores [replies], 0 to 1; `reply` may hold several replies to each query, one round after another."""
        asked, answered = self.query(*query), self.reply(*reply)
        found: Tensor = self.head(asked.repeat(len(answered) // len(asked), 1), answered).sigmoid()
        return found


class BiRnnNetwork(nn.Module):
    """The Bi-RNN engagement classifier: one GRU per side, tanh, two classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.reply = WordReader(width, BI_RNN_UNITS), WordReader(width, BI_RNN_UNITS)
        self.layers = nn.Sequential(
            nn.Linear(4 * BI_RNN_UNITS, BI_RNN_UNITS), nn.Tanh(), nn.Dropout(BI_RNN_DROPOUT), nn.Linear(BI_RNN_UNITS, 2)
        )

    def forward(self, query: Texts, reply: Texts) -> Tensor:
        """Logits [pairs, 2]."""
        logits: Tensor = self.layers(torch.cat([self.query(*query), self.reply(*reply)], dim=-1))
        return logits


LOW, HIGH = 0.01, 0.99  # Quantiles that become 0 and 1: the extremes would depend on two turns. Chosen.


@dataclass(frozen=True)
class TrainingScale:
    """Linear from the training scores' 1st to their 99th percentile, and flat beyond."""

    low: float
    high: float

    @classmethod
    def fit(cls, training_scores: Sequence[float]) -> "TrainingScale":
        """Raises ExporterError where all scores are equal or none is given."""
        if not len(training_scores):
            raise ExporterError("a scale needs training scores")
        low, high = np.quantile(np.asarray(training_scores, dtype=np.float64), [LOW, HIGH])
        if not high > low:
            raise ExporterError(f"every training score is {low:.4g}: scores that vary are needed")
        return cls(float(low), float(high))

    def apply(self, scores: ArrayLike) -> Floats:
        found: Floats = np.clip((np.asarray(scores, dtype=np.float64) - self.low) / (self.high - self.low), 0.0, 1.0)
        return found


# Specified: Adam, 128 pairs a step.
FUSED_ADAM = partial(torch.optim.Adam, fused=True)
RUBER_BATCH = 128
RUBER_PAIRS_AT_ONCE = 256

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Ruber:
    """The trained system. A turn without references has the unreferenced score alone."""

    network: RuberNetwork
    vectors: WordVectors
    unreferenced: TrainingScale
    referenced: TrainingScale

    def score(self, asked: Sequence[EvalTurn]) -> dict[str, Floats]:
        """`unreferenced`; where every turn has references also `referenced`, and `min` and `mean` of both."""
        fits = self.unreferenced.apply(
            score_ruber_network(self.network, self.vectors, [(a.query, a.response) for a in asked])
        )
        if not asked or not all(each.references for each in asked):
            return {"unreferenced": fits}
        near = self.referenced.apply([compare_references(self.vectors, a.response, a.references) for a in asked])
        blends = {"min": np.minimum(fits, near), "mean": (fits + near) / 2}
        return {"unreferenced": fits, "referenced": near, **blends}


def train_ruber_network(
    network: RuberNetwork,
    exchanges: Sequence[LabelledTurn],
    negatives: RandomNegatives,
    vectors: WordVectors,
    settings: LoopSettings,
    state_path: Path | None = None,
) -> None:
    """Trains in place on the ranking loss; each reply's wrong counterpart is drawn again each epoch."""
    batches = -(-len(exchanges) // RUBER_BATCH)

    def step_loss(step: int) -> Tensor:
        chosen = choose_batch(len(exchanges), RUBER_BATCH, step, settings.seed)
        wrong = [exchanges[negatives.draw(index, step // batches)].response for index in chosen]
        query = read_texts(vectors, [exchanges[index].query for index in chosen], QUERY_WORDS)
        replies = read_texts(vectors, [*(exchanges[index].response for index in chosen), *wrong], REPLY_WORDS)
        fitting, wrongly = network(query, replies).chunk(2)
        ranking: Tensor = (MARGIN - fitting + wrongly).clamp_min(0.0)
        return ranking.mean()

    train(network, step_loss, replace(settings, optimizer=FUSED_ADAM), state_path=state_path)


def fit_scales(
    network: RuberNetwork, vectors: WordVectors, exchanges: Sequence[LabelledTurn], wrong: Callable[[int], int]
) -> tuple[TrainingScale, TrainingScale]:
    """The scales of both scores, from training exchanges with their true and with wrong replies.

    The true reply is the reference of the wrong one alone: compared with itself it would score 1.
    """
    others = [exchanges[wrong(index)].response for index in range(len(exchanges))]
    pairs = [(each.query, each.response) for each in exchanges]
    pairs += [(each.query, other) for each, other in zip(exchanges, others, strict=True)]
    near = [compare_references(vectors, other, (each.response,)) for each, other in zip(exchanges, others, strict=True)]
    return TrainingScale.fit(score_ruber_network(network, vectors, pairs)), TrainingScale.fit(near)


def score_ruber_network(network: RuberNetwork, vectors: WordVectors, pairs: Sequence[Pair]) -> list[float]:
    """The network's raw score of each (query, reply)."""
    scores: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(pairs), RUBER_PAIRS_AT_ONCE):
            scores += ask_network(network, vectors, pairs[start : start + RUBER_PAIRS_AT_ONCE]).tolist()
    return scores


def ask_network(network: nn.Module, vectors: WordVectors, pairs: Sequence[Pair]) -> Tensor:
    """What the network gives for each (query, reply)."""
    query = read_texts(vectors, [query for query, _ in pairs], QUERY_WORDS)
    found: Tensor = network(query, read_texts(vectors, [reply for _, reply in pairs], REPLY_WORDS))
    return found


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
    """The word vectors of each text's first words; a text without words becomes one word of zeros."""
    rows = [vectors.of(split_words(text)[:most_words]) for text in texts]
    kept = [torch.from_numpy(row) if len(row) else torch.zeros(1, row.shape[1]) for row in rows]
    return pad_sequence(kept, batch_first=True), torch.tensor([len(row) for row in kept])


def _cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length > 0 else 0.0
