"""FED's parity: graphs through the serving code against the published way, and against the fp32 graph on real turns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue
from turnscore_core.scorers.fed.options import FedBundleOptions, Loss
from turnscore_core.scorers.fed.scorer import FedScorer

from turnscore_exporters.bundles.self_test_turns import FED_VERIFIED, build_turn
from turnscore_exporters.errors import ParityError
from turnscore_exporters.fed.checkpoint import FedCheckpoint
from turnscore_exporters.fed.published import LOSSES, rate_published

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
    for start in range(0, len(packs), PACKS_AT_ONCE):
        batch = packs[start : start + PACKS_AT_ONCE]
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
