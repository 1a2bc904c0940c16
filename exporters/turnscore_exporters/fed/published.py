"""FED as the published code runs it: one forward pass for each follow-up, with transformers' own loss.

Slow on purpose: the one pass must agree with it, so it uses nothing of the one pass.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

import torch
from turnscore_core.scorers.fed.dialogue_tokens import Join
from turnscore_core.scorers.fed.options import Loss, Quality

from turnscore_exporters.fed.checkpoint import FedCheckpoint

LOSSES: tuple[Loss, ...] = get_args(Loss)
IGNORED = -100  # specified: transformers leaves these labels out of the loss


def rate_published(
    checkpoint: FedCheckpoint, texts: Sequence[str], qualities: Mapping[str, Quality], join: Join
) -> dict[Loss, dict[str, float]]:
    """Each quality's value by each loss for the conversation `texts`, oldest turn first, the turn to score last."""
    follow_ups = {
        text: encode_turn(checkpoint, text, join, is_last=True)
        for quality in qualities.values()
        for text in (*quality.positive, *quality.negative)
    }
    context = [checkpoint.eos_id]
    for text in texts:
        context += [*encode_turn(checkpoint, text, join, is_last=False), checkpoint.eos_id]
    context = cut_context(context, checkpoint.window - max(map(len, follow_ups.values())), checkpoint.eos_id)
    found = {text: measure_losses(checkpoint, context, tokens) for text, tokens in follow_ups.items()}
    return {
        loss: {
            name: _mean([found[text][loss] for text in quality.negative])
            - _mean([found[text][loss] for text in quality.positive])
            for name, quality in qualities.items()
        }
        for loss in LOSSES
    }


def encode_turn(checkpoint: FedCheckpoint, text: str, join: Join, *, is_last: bool) -> list[int]:
    """A turn's tokens with its separators."""
    spaced = f" {text}" if is_last else f" {text} "
    piece = text.strip() if join == "stripped" else spaced
    ids: list[int] = checkpoint.tokenizer.encode(piece, add_special_tokens=False).ids
    return ids


def cut_context(context: list[int], room: int, eos_id: int) -> list[int]:
    """The last `room` tokens, the first replaced by the separator."""
    if len(context) <= room:
        return context
    kept = context[-room:]
    return kept if kept[0] == eos_id else [eos_id, *kept[1:]]


def measure_losses(checkpoint: FedCheckpoint, context: Sequence[int], follow_up: Sequence[int]) -> dict[Loss, float]:
    """transformers' mean loss of the follow-up after the context, and of both together, from one forward pass."""
    ids = torch.tensor([[*context, *follow_up]])
    labels = ids.clone()
    labels[:, : len(context)] = IGNORED
    model = checkpoint.model
    with torch.inference_mode():
        whole = model(input_ids=ids, labels=ids)
        response = model.loss_function(whole.logits, labels, vocab_size=model.config.vocab_size)
    return {"whole_sequence": float(whole.loss), "response_only": float(response)}


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses) if losses else 0.0
