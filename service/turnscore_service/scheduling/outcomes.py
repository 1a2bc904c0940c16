"""Outcomes: what the scorers said of one item, and the replies made of it. Computes nothing, waits for nothing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnscore_core.errors import ScoringError
from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.parts import ScorePart
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.token_counts import count_tokens
from turnscore_wire import ErrorDetail, Score, ScoreReply, Timing


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


def score_of(loaded: LoadedScorer, turn: TurnToScore, whole: ScorePart, *, is_cached: bool) -> Score:
    """The score as it travels; `turn` is as the scorer was given it."""
    return Score(
        value=whole.raw.value,
        percentile=loaded.percentile(whole.raw),
        details=whole.raw.details,
        model=loaded.bundle.manifest.reference,
        tokens=count_tokens(whole.tokens.used, whole.tokens.dropped, turn.is_cut),
        cached=is_cached,
        warnings=list(whole.raw.warnings),
        label=loaded.label(whole.raw),
        reasons=loaded.reasons(whole.raw),
        stand_in=loaded.bundle.manifest.stand_in,
    )


def score_reply(outcome: Outcome, request_id: str, started_at: float, place: Mapping[str, int]) -> ScoreReply:
    """The reply of one turn; `place` says which of the request's messages it is, if it has any."""
    raise_if_none([outcome])
    return ScoreReply(
        request_id=request_id,
        scores=outcome.scores,
        errors=error_details(outcome),
        timing_ms=timing_of([outcome], started_at),
        index=place.get("index"),
        skipped=place.get("skipped", 0),
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
