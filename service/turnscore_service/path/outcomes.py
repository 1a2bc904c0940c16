"""Outcomes: what the scorers said of one item, and the replies made of it. Computes nothing, waits for nothing."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnscore_wire import ErrorDetail, Score, ScoreReply, Timing

from turnscore_service.errors import ScoringError


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the scorers said of one item, and the slowest one's times in seconds."""

    scores: dict[str, Score] = field(default_factory=dict)
    errors: dict[str, ScoringError] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)
    """The text's vector, from scorers that make one."""
    tokenize: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    cache: float = 0.0


def score_reply(outcome: Outcome, request_id: str, started_at: float) -> ScoreReply:
    raise_if_none([outcome])
    return ScoreReply(
        request_id=request_id,
        scores=outcome.scores,
        errors=error_details(outcome),
        timing_ms=timing_of([outcome], started_at),
    )


def raise_if_none(outcomes: Sequence[Outcome]) -> None:
    """Raises the first error if no scorer answered for any item."""
    if not any(outcome.scores for outcome in outcomes):
        raise next(error for outcome in outcomes for error in outcome.errors.values())


def error_details(outcome: Outcome) -> dict[str, ErrorDetail]:
    return {name: error.detail() for name, error in outcome.errors.items()}


def timing_of(outcomes: Sequence[Outcome], started_at: float) -> Timing:
    return Timing(
        total=1000 * (time.monotonic() - started_at),
        tokenize=1000 * max(outcome.tokenize for outcome in outcomes),
        queue=1000 * max(outcome.queue for outcome in outcomes),
        inference=1000 * max(outcome.inference for outcome in outcomes),
        cache=1000 * max(outcome.cache for outcome in outcomes),
    )
