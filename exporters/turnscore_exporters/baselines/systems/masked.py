"""USR's language model score: how expected each word of a response is, given all the others.

Exact: each token of the response is masked in its own copy of the row. The score is the mean over the response's
tokens, so length does not decide; the context is read, never scored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel
from turnscore_core.scorers.pair_rows import masked_copies

from turnscore_exporters.baselines.encoders.checkpoints import PairCheckpoint, split_by_length
from turnscore_exporters.baselines.material.asked import Floats
from turnscore_exporters.baselines.material.exchanges import Exchange
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.training.loop import LoopSettings, choose_batch, run_loop

MASKED_SHARE, KEPT_SHARE, OTHER_SHARE = 0.15, 0.1, 0.1
"""Shares of tokens: predicted ones; of these, ones kept, and ones replaced by another token. Specified."""
LEARNING_RATE, WEIGHT_DECAY = 5e-5, 0.01
NOT_PREDICTED = -100
"""The label of a token that is not predicted."""
TOKENS_AT_ONCE = 4096


def train_masked(
    checkpoint: PairCheckpoint,
    exchanges: Sequence[Exchange],
    settings: LoopSettings,
    *,
    batch_size: int,
    learning_rate: float = LEARNING_RATE,
    state_path: Path | None = None,
) -> None:
    """Trains the model in place to predict masked tokens of exchanges."""
    model = checkpoint.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY, fused=True)

    def step_loss(step: int) -> Tensor:
        chosen = [exchanges[index] for index in choose_batch(len(exchanges), batch_size, step, settings.seed)]
        rows = checkpoint.lay_out([(each.query, each.reply) for each in chosen])
        inputs = checkpoint.collate([row.ids for row in rows], [row.response_start for row in rows])
        inputs["input_ids"], wanted = hide_tokens(inputs["input_ids"], checkpoint)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return hidden_loss(model, inputs, wanted)

    model.train()
    run_loop(model, optimizer, step_loss, settings, state_path)
    model.eval()


def hidden_loss(model: PreTrainedModel, inputs: Mapping[str, Tensor], wanted: Tensor) -> Tensor:
    """The mean cross entropy of the `wanted` tokens [rows, tokens]; the others are not multiplied by the word table."""
    trunk, head = split_model(model)
    hidden, targets = [], []
    for places, group in split_by_length(model, inputs):
        labels = wanted[places, : group["attention_mask"].shape[1]]
        is_wanted = labels != NOT_PREDICTED
        hidden.append(trunk(**group).last_hidden_state[is_wanted])
        targets.append(labels[is_wanted])
    return functional.cross_entropy(head(torch.cat(hidden)).float(), torch.cat(targets))


def hide_tokens(ids: Tensor, checkpoint: PairCheckpoint) -> tuple[Tensor, Tensor]:
    """The ids with some tokens hidden, and the labels; special tokens and padding are never predicted."""
    marks = checkpoint.marks
    is_text = ~torch.isin(ids, torch.tensor([marks.first, *marks.between, marks.last, marks.pad]))
    drawn = (torch.rand(ids.shape) < MASKED_SHARE) & is_text
    if not drawn.any():  # a short batch may hide nothing; its loss would be NaN
        drawn = is_text & (torch.cumsum(is_text.flatten(), 0).reshape(ids.shape) == 1)
    wanted = torch.where(drawn, ids, NOT_PREDICTED)
    way = torch.rand(ids.shape)
    hidden = torch.where(drawn & (way >= KEPT_SHARE + OTHER_SHARE), _mask_of(checkpoint), ids)
    others = torch.randint(0, int(checkpoint.config.vocab_size), ids.shape)
    is_other = drawn & (way >= KEPT_SHARE) & (way < KEPT_SHARE + OTHER_SHARE)
    return torch.where(is_other, others, hidden), wanted


def score_masked(checkpoint: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The mean log probability of each response's tokens; NaN for a response without tokens."""
    rows = checkpoint.lay_out(pairs)
    copies = [
        (index, row.response_start, *copy)
        for index, row in enumerate(rows)
        for copy in masked_copies(row.ids, row.response_start, row.response_end, _mask_of(checkpoint))
    ]
    copies.sort(key=lambda copy: len(copy[2]))
    sums, counts = np.zeros(len(rows)), np.zeros(len(rows))
    with torch.inference_mode():
        start = 0
        while start < len(copies):
            end = min(len(copies), start + max(1, TOKENS_AT_ONCE // len(copies[start][2])))
            chosen = copies[start:end]
            found = _log_probabilities(checkpoint, chosen)
            places = [copy[0] for copy in chosen]
            np.add.at(sums, places, found.double().numpy())
            np.add.at(counts, places, 1)
            start = end
    with np.errstate(invalid="ignore"):
        means: Floats = sums / counts
    return means


def _log_probabilities(
    checkpoint: PairCheckpoint, copies: Sequence[tuple[int, int, tuple[int, ...], int, int]]
) -> Tensor:
    """Log probability of the token that each copy hides; only its place is multiplied by the word table."""
    _, starts, rows, places, targets = zip(*copies, strict=True)
    inputs = checkpoint.collate(rows, starts)
    trunk, head = split_model(checkpoint.model)
    tokens = trunk(**inputs).last_hidden_state
    hidden = tokens[torch.arange(len(rows)), torch.tensor(places)]
    found: Tensor = head(hidden).log_softmax(-1)[torch.arange(len(rows)), torch.tensor(targets)]
    return found


def split_model(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The encoder, and the head over the vocabulary, of a BERT or RoBERTa."""
    for trunk, head in (("bert", "cls"), ("roberta", "lm_head")):
        if hasattr(model, trunk) and hasattr(model, head):
            return getattr(model, trunk), getattr(model, head)
    raise EncoderError(f"{type(model).__name__} has no known head for masked words; name a BERT or RoBERTa")


def _mask_of(checkpoint: PairCheckpoint) -> int:
    if checkpoint.marks.mask is None:
        raise EncoderError(f"checkpoint {checkpoint.name}: its tokenizer has no mask token")
    return checkpoint.marks.mask
