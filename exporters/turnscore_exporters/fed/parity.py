"""FED's parity: graphs as served against the published computation, and against the fp32 graph on real turns.

The published computation runs one forward pass for each follow-up with transformers' own loss. It is slow on purpose:
the one pass must agree with it, so it uses nothing of the one pass.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from turnscore_core.scorers.fed.questions import FedBundleOptions, Join, Loss, Quality
from turnscore_core.scorers.fed.scorer import FedScorer

from turnscore_exporters.bundles.self_test import FED_VERIFIED, build_turn
from turnscore_exporters.errors import ParityError
from turnscore_exporters.fed.model import FedCheckpoint
from turnscore_exporters.training.encoders import chunks

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


PACKS_AT_ONCE = 8

Values = NDArray[np.float64]


def rate_verified_turns(checkpoint: FedCheckpoint, options: FedBundleOptions) -> dict[Loss, Values]:
    """Values [turns, qualities] of the verified turns, computed the published way."""
    rated = [rate_published(checkpoint, texts, options.qualities, options.join) for texts in FED_VERIFIED]
    return {loss: np.array([list(each[loss].values()) for each in rated]) for loss in LOSSES}


def verify_published(
    published: dict[Loss, Values], scorer: FedScorer, options: FedBundleOptions, tolerance: float
) -> dict[Loss, float]:
    """The largest difference of any quality from the published way, by loss; ParityError where it is too large.

    The turns are scored in one call, so those with the same beginning share their context.
    """
    worst: dict[Loss, float] = {}
    for loss in LOSSES:
        served = serve_turns(scorer, FED_VERIFIED, options, loss)
        differences = np.abs(served - published[loss])
        worst[loss] = float(differences.max())
        if not worst[loss] <= tolerance:
            turn, quality = np.unravel_index(differences.argmax(), differences.shape)
            raise ParityError(
                f"{list(options.qualities)[quality]} ({loss}) after {FED_VERIFIED[turn][-1]!r} differs from the "
                f"published way by {worst[loss]:.2e}; the tolerance is {tolerance:.0e}"
            )
    return worst


def serve_turns(
    scorer: FedScorer, conversations: Sequence[Sequence[str]], options: FedBundleOptions, loss: Loss
) -> Values:
    """Values [turns, qualities] of all of the bundle's qualities, in its order."""
    asked: dict[str, JsonValue] = {"qualities": list(options.qualities), "loss": loss}
    turns = [build_turn(texts, scorer.read_options(asked)) for texts in conversations]
    values = np.zeros((len(turns), len(options.qualities)))
    packs = scorer.encode(turns)
    for pack in packs:
        for place, raw in zip(pack.answers, scorer.score([pack]), strict=True):
            values[place] = [raw.details[name] for name in options.qualities]
    return values


def serve_both_losses(
    scorer: FedScorer, conversations: Sequence[Sequence[str]], options: FedBundleOptions
) -> dict[Loss, Values]:
    """The result of `serve_turns` for every loss, from the same passes."""
    question = scorer.read_options({"qualities": list(options.qualities), "loss": "whole_sequence"})
    packs = scorer.encode([build_turn(texts, question) for texts in conversations])
    packs.sort(key=lambda pack: pack.width)
    values: dict[Loss, Values] = {loss: np.zeros((len(conversations), len(options.qualities))) for loss in LOSSES}
    for batch in chunks(packs, PACKS_AT_ONCE):
        places = [place for pack in batch for place in pack.answers]
        for place, found in zip(places, scorer.compute_losses(batch), strict=True):
            for loss in LOSSES:
                values[loss][place] = found.rate(loss)
    return values


def mean_values(values: Values, options: FedBundleOptions) -> Values:
    """The turns' values on the bundle's default question."""
    places = [list(options.qualities).index(name) for name in options.default_qualities]
    mean: Values = values[:, places].mean(1)
    return mean


def write_reference(file: Path, values: Mapping[Loss, Values]) -> None:
    """Writes the reference turns' values of every loss, which give percentiles for any choice of qualities."""
    arrays: dict[str, Any] = {loss: each.astype(np.float32) for loss, each in values.items()}
    np.savez_compressed(file, **arrays)
