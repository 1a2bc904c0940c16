"""Trains engagement models: heads on cached vectors of a frozen encoder, and the whole model on labelled pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from turnscore_exporters.data.pairs import EngagementPair
from turnscore_exporters.engagement.model import EngagementHead, EngagementModel, collate_pairs
from turnscore_exporters.training.encoders import Encoder, pad_rows
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

ROWS_AT_ONCE = 64
WEIGHT_DECAY = 0.05  # chosen


class TextVectors:
    """Row vectors of texts under one encoder and pooling, computed once each."""

    def __init__(self, model: EngagementModel, encoder: Encoder) -> None:
        self._model = model
        self._encoder = encoder
        self._vectors: dict[str, Tensor] = {}

    def add(self, texts: Iterable[str], description: str = "encoding texts") -> None:
        """Computes the missing vectors, shortest text first."""
        wanted = sorted(set(texts) - self._vectors.keys())
        if not wanted:
            return
        rows = dict(zip(wanted, self._encoder.tokenize(wanted), strict=True))
        wanted.sort(key=lambda text: len(rows[text]))
        self._model.eval()
        with torch.inference_mode(), tqdm(total=len(wanted), desc=description, unit="text") as bar:
            for start in range(0, len(wanted), ROWS_AT_ONCE):
                chosen = wanted[start : start + ROWS_AT_ONCE]
                vectors = self._model.read_rows(*pad_rows([rows[text] for text in chosen]))
                self._vectors.update(zip(chosen, vectors, strict=True))
                bar.update(len(chosen))

    def features(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """The head's input for (query, reply) texts, [pairs, features]; an empty query counts as missing."""
        self.add(text for query, reply in pairs for text in (query or reply, reply))
        query = torch.stack([self._vectors[query or reply] for query, reply in pairs])
        reply = torch.stack([self._vectors[reply] for _, reply in pairs])
        return self._model.combine(query, reply).clone()


@dataclass(frozen=True)
class Source:
    """Labelled features [pairs, features], and how many of them a step takes."""

    features: Tensor
    labels: Tensor
    batch_size: int

    def class_weights(self) -> Tensor:
        """Inverse class frequencies, with mean 1 over the pairs: [weight of 0, weight of 1]."""
        positives = float(self.labels.float().mean().clamp(1e-3, 1 - 1e-3))
        return torch.tensor([0.5 / (1 - positives), 0.5 / positives])


def texts_of(pairs: Sequence[EngagementPair]) -> list[tuple[str, str]]:
    return [(pair.query, pair.reply) for pair in pairs]


def labels_of(pairs: Sequence[EngagementPair]) -> Tensor:
    return torch.tensor([pair.label for pair in pairs])


def train_head(
    head: EngagementHead,
    source: Source,
    settings: LoopSettings,
    *,
    learning_rate: float = 1e-3,
    state_path: Path | None = None,
    keep_scale: bool = False,
) -> None:
    """Trains one head in place on the weighted cross entropy; `keep_scale` leaves its scaling as it is."""
    if not keep_scale:
        head.fit_scale(source.features)
    optimizer = torch.optim.AdamW(head.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    weight = source.class_weights()

    def step_loss(step: int) -> Tensor:
        chosen = torch.tensor(choose_batch(len(source.labels), source.batch_size, step, settings.seed))
        return functional.cross_entropy(head(source.features[chosen]), source.labels[chosen], weight=weight)

    head.train()
    run_loop(head, optimizer, step_loss, settings, state_path)
    head.eval()


def fine_tune(
    model: EngagementModel,
    encoder: Encoder,
    pairs: Sequence[EngagementPair],
    settings: LoopSettings,
    *,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    head_learning_rate: float = 1e-3,
    state_path: Path | None = None,
) -> None:
    """Trains encoder and first head together on the weighted cross entropy; the word embeddings stay as they are."""
    head = model.first_head
    weight = Source(torch.zeros(0), labels_of(pairs), batch_size).class_weights()
    model.encoder.embeddings.requires_grad_(False)
    groups = [
        {"params": [each for each in model.encoder.parameters() if each.requires_grad], "lr": learning_rate},
        {"params": head.parameters(), "lr": head_learning_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    batches = _length_sorted(pairs, batch_size)

    def step_loss(step: int) -> Tensor:
        chosen = [pairs[index] for index in batches[choose_batch(len(batches), 1, step, settings.seed)[0]]]
        ids, mask, query_row, reply_row = collate_pairs(encoder, texts_of(chosen))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = model.read_rows(ids, mask)
        logits = head(model.combine(vectors[query_row], vectors[reply_row]).float())
        return functional.cross_entropy(logits, labels_of(chosen), weight=weight)

    model.train()
    run_loop(model, optimizer, step_loss, settings, state_path)
    model.requires_grad_(True).eval()


def _length_sorted(pairs: Sequence[EngagementPair], batch_size: int) -> list[list[int]]:
    """Batches of pairs, sorted by the length of their texts."""
    order = sorted(range(len(pairs)), key=lambda index: max(len(pairs[index].query), len(pairs[index].reply)))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
