"""Adaptation: teaches an encoder dialogue before any engagement head is trained on it.

Several questions share the encoder, each with a small head that is dropped afterwards: is this the given reply
(contrast text), is the dialogue engaging under each reading of ConvAI, was this bot turn voted up. The word embeddings
stay as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnscore_exporters.data.contrast_text import ContrastText
from turnscore_exporters.data.pairs import EngagementPair
from turnscore_exporters.engagement.model import Pooling, compare, pool
from turnscore_exporters.training.encoders import Encoder, pad_rows
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

# Chosen on the 300 transfer pairs (cross-validated); 24 + 3 x 8 pairs a step fill a CPU core for about a second.
LEARNING_RATE, HEAD_LEARNING_RATE, WEIGHT_DECAY = 5e-5, 1e-3, 0.01
CONTRAST_BATCH, LABELLED_BATCH, ROWS_AT_ONCE = 24, 8, 48
MISSING_QUERY_EVERY = 12
CONTRAST = "contrast"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A batch of one question: queries, replies, and the answer for each."""

    name: str
    queries: list[str]
    replies: list[str]
    answers: list[float]


class AdaptedEncoder(nn.Module):
    """The encoder with one head per question."""

    def __init__(self, encoder: Encoder, questions: Sequence[str], pooling: Pooling) -> None:
        super().__init__()
        self.bert = encoder.model
        self.bert.embeddings.requires_grad_(False)
        self.pooling = pooling
        self._tokenize = encoder.tokenize
        width = encoder.width * 4
        self.heads = nn.ModuleDict({name: _build_head(width) for name in questions})

    def loss(self, questions: Sequence[Question], weights: Mapping[str, float]) -> Tensor:
        """The sum over questions of the cross entropy; `weights` are those of the answer 1."""
        vectors = self._encode({text for each in questions for text in (*each.queries, *each.replies)})
        total = torch.zeros(())
        for each in questions:
            query = torch.stack([vectors[text] for text in each.queries])
            reply = torch.stack([vectors[text] for text in each.replies])
            logits = self.heads[each.name](compare(query, reply)).squeeze(-1)
            total = total + functional.binary_cross_entropy_with_logits(
                logits, torch.tensor(each.answers), pos_weight=torch.tensor(weights[each.name])
            )
        return total

    def _encode(self, texts: set[str]) -> dict[str, Tensor]:
        ordered = sorted(texts)
        rows = dict(zip(ordered, self._tokenize(ordered), strict=True))
        ordered.sort(key=lambda text: len(rows[text]))
        vectors: dict[str, Tensor] = {}
        for start in range(0, len(ordered), ROWS_AT_ONCE):
            chosen = ordered[start : start + ROWS_AT_ONCE]
            ids, mask = pad_rows([rows[text] for text in chosen])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                tokens = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            vectors.update(zip(chosen, pool(tokens.float(), mask, self.pooling), strict=True))
        return vectors


def _build_head(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))


def adapt_encoder(
    encoder: Encoder,
    contrast: ContrastText,
    labelled: Mapping[str, Sequence[EngagementPair]],
    pooling: Pooling,
    settings: LoopSettings,
    state_path: Path | None = None,
) -> None:
    """Trains the encoder in place on contrast text and every labelled set; the heads are dropped."""
    torch.manual_seed(settings.seed)
    model = AdaptedEncoder(encoder, [CONTRAST, *labelled], pooling).train()
    trained = [weight for weight in model.bert.parameters() if weight.requires_grad]
    groups = [{"params": trained, "lr": LEARNING_RATE}, {"params": model.heads.parameters(), "lr": HEAD_LEARNING_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)
    weights = {name: _balance(pairs) for name, pairs in labelled.items()} | {CONTRAST: 2.0}

    def step_loss(step: int) -> Tensor:
        questions = [ask_contrast(contrast, step, settings.seed)]
        questions += [_ask_labels(name, pairs, step, settings.seed) for name, pairs in labelled.items()]
        return model.loss(questions, weights)

    run_loop(model, optimizer, step_loss, settings, state_path)
    model.bert.requires_grad_(True).eval()


def _balance(pairs: Sequence[EngagementPair]) -> float:
    positives = sum(pair.label for pair in pairs)
    return (len(pairs) - positives) / max(1, positives)


def ask_contrast(contrast: ContrastText, step: int, seed: int) -> Question:
    """Three rows per pair of a batch: the real reply (1), its spoilt form and the next pair's reply (both 0).

    Every twelfth query is missing; without it any real reply fits, so the third row is left out there.
    """
    chosen = choose_batch(len(contrast.pairs), CONTRAST_BATCH, step, seed)
    queries, replies, answers = [], [], []
    for place, index in enumerate(chosen):
        pair, other = contrast.pairs[index], contrast.pairs[chosen[place - 1]]
        has_query = (step + place) % MISSING_QUERY_EVERY != 0
        candidates = [(pair.reply, 1.0), (contrast.spoil(index), 0.0), (other.reply, 0.0)]
        for reply, answer in candidates if has_query else candidates[:2]:
            queries.append(pair.query if has_query else reply)
            replies.append(reply)
            answers.append(answer)
    return Question(name=CONTRAST, queries=queries, replies=replies, answers=answers)


def _ask_labels(name: str, pairs: Sequence[EngagementPair], step: int, seed: int) -> Question:
    chosen = [pairs[index] for index in choose_batch(len(pairs), LABELLED_BATCH, step, seed)]
    queries = [
        pair.reply if not pair.query or (step + place) % MISSING_QUERY_EVERY == 0 else pair.query
        for place, pair in enumerate(chosen)
    ]
    return Question(
        name=name,
        queries=queries,
        replies=[pair.reply for pair in chosen],
        answers=[float(pair.label) for pair in chosen],
    )
