"""Calls: what each call of the API takes and what it does, whatever door it came through."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from turnscore_core.deadline import Deadline
from turnscore_wire import (
    BatchReply,
    BatchRequest,
    DialogueReply,
    DialogueRequest,
    ErrorCode,
    Limits,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    SimilarityRequest,
)

from turnscore_service.api.decoder import decode, decode_batch, validate, validate_batch
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.loop_time import Slices
from turnscore_service.scheduling.pipeline import ScoringPipeline

DeadlineOf = Callable[[int | None], Deadline]
"""Makes the deadline of a request from the `deadline_ms` that it names, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that scores. `wanted` is what `decode` or `validate` made of the request."""

    name: str
    """The end of its path over HTTP, and its label in metrics."""
    method: str
    """Its name over gRPC."""
    summary: str
    request_type: type[BaseModel]
    reply_type: type[BaseModel]
    decode: Callable[[bytes, Limits, Slices], Awaitable[Any]]
    validate: Callable[[object, Limits, Slices], Awaitable[Any]]
    do: Callable[[ScoringPipeline, Any, str, Deadline], Awaitable[BaseModel]]
    own_errors: tuple[ErrorCode, ...] = ()
    """Its own error codes, besides those of every call."""

    async def run(self, runtime: Runtime, wanted: Any, request_id: str, deadline_of: DeadlineOf) -> BaseModel:
        """The reply. Raises what the pipeline raises."""
        return await self.do(runtime.pipeline(), wanted, request_id, deadline_of(getattr(wanted, "deadline_ms", None)))


def _single(
    names: tuple[str, str],
    summary: str,
    request_type: type[BaseModel],
    reply_type: type[BaseModel],
    do: Callable[[ScoringPipeline, Any, str, Deadline], Awaitable[BaseModel]],
    *own_errors: ErrorCode,
) -> Call:
    """A call whose request is right or wrong as a whole."""

    async def decode_single(body: bytes, limits: Limits, slices: Slices) -> BaseModel:
        await slices.pause()
        return decode(request_type, body, limits)

    async def validate_single(parsed: object, limits: Limits, slices: Slices) -> BaseModel:
        await slices.pause()
        return validate(request_type, parsed, limits)

    name, method = names
    return Call(
        name=name,
        method=method,
        summary=summary,
        request_type=request_type,
        reply_type=reply_type,
        decode=decode_single,
        validate=validate_single,
        do=do,
        own_errors=own_errors,
    )


CALLS: tuple[Call, ...] = (
    _single(
        ("score", "Score"),
        "Scores one system turn.",
        ScoreRequest,
        ScoreReply,
        ScoringPipeline.score,
    ),
    Call(
        name="score_batch",
        method="ScoreBatch",
        summary="Scores independent system turns; each is answered, or refused, on its own.",
        request_type=BatchRequest,
        reply_type=BatchReply,
        decode=decode_batch,
        validate=validate_batch,
        do=ScoringPipeline.score_batch,
    ),
    _single(
        ("score_dialogue", "ScoreDialogue"),
        "Scores every system turn of a dialogue, and the dialogue.",
        DialogueRequest,
        DialogueReply,
        ScoringPipeline.score_dialogue,
    ),
    _single(
        ("rank", "Rank"),
        "Puts several responses to one context in order, best first.",
        RankRequest,
        RankReply,
        ScoringPipeline.rank,
    ),
    _single(
        ("similarity", "Similarity"),
        "Compares texts with references by the sentence encoder, where one is loaded.",
        SimilarityRequest,
        SimilarityReply,
        ScoringPipeline.similarity,
        ErrorCode.NOT_FOUND,
    ),
)
