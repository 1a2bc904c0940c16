"""Isolation: a turn that a scorer cannot tokenize, or its runtime cannot compute, fails alone."""

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence

from turnscore_core.errors import (
    FailedScoringError,
    InvalidRequestError,
    NotComputableError,
    OverloadedError,
    ScoringError,
)
from turnscore_core.inference.batch_budget import TokenLimit
from turnscore_core.inference.onnx_backend import OutOfMemoryError
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import BuildsPlans, RawScore, TokenPack, TurnToScore

from turnscore_service import metrics
from turnscore_service.scheduling.batch_growth import padded_tokens

PackResult = tuple[RawScore | FailedScoringError, ...] | Exception
"""A pack's scores, one for each of its answers, or what the runtime raised when the pack stood alone."""

_MEMORY_RETRY_MS = 1000
"""Milliseconds after which other processes may have given memory back. Chosen."""
_LOGGER = logging.getLogger("turnscore.scorers")
_PIECE = 64
"""Chosen: 64 turns at their limits take some 50 ms to tokenize, and a text that two pieces share is tokenized twice."""


def encode_in_pieces(
    loaded: LoadedScorer, turns: Sequence[TurnToScore], is_given_up: Callable[[], bool]
) -> tuple[list[TokenPack], Mapping[int, ScoringError]]:
    """As `encode_isolating`, some turns at a time; nothing more once nobody waits for them.

    A scorer that builds plans may put all of the turns into one pack, so it gets them together.
    """
    if isinstance(loaded.scorer, BuildsPlans):
        return encode_isolating(loaded, turns)
    packs: list[TokenPack] = []
    failed: dict[int, ScoringError] = {}
    for start in range(0, len(turns), _PIECE):
        if is_given_up():
            break
        own, broken = encode_isolating(loaded, turns[start : start + _PIECE])
        packs += [moved(pack, start) for pack in own] if start else own
        failed.update((start + place, error) for place, error in broken.items())
    return packs, failed


def moved(pack: TokenPack, by: int) -> TokenPack:
    """The pack, answering turns that stand so many places later."""
    return dataclasses.replace(pack, answers=tuple(by + place for place in pack.answers))


def encode_isolating(
    loaded: LoadedScorer, turns: Sequence[TurnToScore]
) -> tuple[list[TokenPack], dict[int, ScoringError]]:
    """The turns' packs; when tokenizing them together fails, one by one, so that a broken turn fails alone."""
    try:
        return loaded.scorer.encode(turns), {}
    except InvalidRequestError as error:
        if len(turns) == 1:
            return [], {0: InvalidRequestError(error.message, field=f"options.{loaded.kind}.{error.field}")}
    except Exception as error:
        if len(turns) == 1:
            _LOGGER.error("tokenizing failed: %s", type(error).__name__, exc_info=error)
            return [], {0: FailedScoringError(f"{loaded.name} could not tokenize the text")}
    packs: list[TokenPack] = []
    failed: dict[int, ScoringError] = {}
    for place, turn in enumerate(turns):
        own, broken = encode_isolating(loaded, [turn])
        packs += [dataclasses.replace(pack, answers=(place,) * len(pack.answers)) for pack in own]
        if broken:
            failed[place] = broken[0]
    return packs, failed


def score_isolating(loaded: LoadedScorer, packs: Sequence[TokenPack], limit: TokenLimit) -> list[PackResult]:
    """The results of a batch, in order. A batch that fails is halved until the failing pack stands alone.

    Where memory ended, `limit` shrinks, so that the batches that follow are smaller.
    """
    try:
        scores = loaded.scorer.score(packs)
        wanted = sum(len(pack.answers) for pack in packs)
        if len(scores) != wanted:
            raise FailedScoringError(f"{loaded.name} answered {len(scores)} of {wanted} turns")
    except Exception as error:
        if isinstance(error, OutOfMemoryError):
            metrics.OUT_OF_MEMORY.labels(loaded.name).inc()
            limit.shrink(sum(map(padded_tokens, packs)))
        if len(packs) == 1:
            return [error]
        middle = len(packs) // 2
        return score_isolating(loaded, packs[:middle], limit) + score_isolating(loaded, packs[middle:], limit)
    limit.recover()
    in_order = iter(scores)
    return [tuple(_refuse_nan(loaded, next(in_order)) for _ in pack.answers) for pack in packs]


def to_scoring_error(cause: BaseException) -> ScoringError:
    """What failed a pack, as its callers get it."""
    if isinstance(cause, FailedScoringError):
        return cause
    if isinstance(cause, OutOfMemoryError):
        return OverloadedError("the device has no memory left for this turn", retry_after_ms=_MEMORY_RETRY_MS)
    return FailedScoringError("the model failed on this turn")


def _refuse_nan(loaded: LoadedScorer, score: RawScore) -> RawScore | FailedScoringError:
    if all(map(math.isfinite, (score.value, *score.details.values()))):
        return score
    return NotComputableError(f"{loaded.name} gave a score that is not a number")
