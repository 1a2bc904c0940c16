"""Calls: what each call of the API takes, what it costs and what it does, whatever door it came through."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from turnscore_wire import (
    BatchReply,
    BatchRequest,
    DialogueReply,
    DialogueRequest,
    Limits,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
)

from turnscore_service.access import Caller
from turnscore_service.deadline import Deadline
from turnscore_service.decoding import decode, decode_batch, validate, validate_batch
from turnscore_service.errors import ScoringError
from turnscore_service.pipeline import ScoringPipeline
from turnscore_service.wiring import Runtime

DeadlineOf = Callable[[int | None], Deadline]
"""Makes the deadline of a request from the `deadline_ms` that it names, if any."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that scores. `wanted` is what `decode` or `validate` made of the request."""

    name: str
    """The end of its path over HTTP, and its label in metrics."""
    method: str
    """Its name over gRPC."""
    summary: str
    request_type: type[BaseModel]
    reply_type: type[BaseModel]
    decode: Callable[[bytes, Limits], Any]
    validate: Callable[[object, Limits], Any]
    count_turns: Callable[[Any], int]
    """How many turns the request asks to score: what it costs its key."""
    do: Callable[[ScoringPipeline, Any, str, Deadline], Awaitable[BaseModel]]

    async def run(
        self, runtime: Runtime, wanted: Any, caller: Caller, request_id: str, deadline_of: DeadlineOf
    ) -> BaseModel:
        """The reply. Raises what the pipeline raises, and OverloadedError where the caller's key asks for too much."""
        pipeline = runtime.pipeline()
        caller.charge(self.count_turns(wanted))
        return await self.do(pipeline, wanted, request_id, deadline_of(getattr(wanted, "deadline_ms", None)))


def _single(
    names: tuple[str, str],
    summary: str,
    request_type: type[BaseModel],
    reply_type: type[BaseModel],
    count_turns: Callable[[Any], int],
    do: Callable[[ScoringPipeline, Any, str, Deadline], Awaitable[BaseModel]],
) -> Call:
    """A call whose request is right or wrong as a whole."""
    return Call(
        *names,
        summary,
        request_type,
        reply_type,
        lambda body, _: decode(request_type, body),
        lambda parsed, _: validate(request_type, parsed),
        count_turns,
        do,
    )


def _count_system_turns(request: DialogueRequest) -> int:
    return sum(turn.speaker == "system" for turn in request.turns)


def _count_right_items(items: Sequence[ScoreRequest | ScoringError]) -> int:
    return sum(isinstance(item, ScoreRequest) for item in items)


CALLS: tuple[Call, ...] = (
    _single(
        ("score", "Score"),
        "Scores one system turn.",
        ScoreRequest,
        ScoreReply,
        lambda _: 1,
        ScoringPipeline.score,
    ),
    Call(
        *("score_batch", "ScoreBatch"),
        "Scores independent system turns; each is answered, or refused, on its own.",
        BatchRequest,
        BatchReply,
        decode_batch,
        validate_batch,
        _count_right_items,
        ScoringPipeline.score_batch,
    ),
    _single(
        ("score_dialogue", "ScoreDialogue"),
        "Scores every system turn of a dialogue, and the dialogue.",
        DialogueRequest,
        DialogueReply,
        _count_system_turns,
        ScoringPipeline.score_dialogue,
    ),
    _single(
        ("rank", "Rank"),
        "Puts several responses to one context in order, best first.",
        RankRequest,
        RankReply,
        lambda request: len(request.candidates),
        ScoringPipeline.rank,
    ),
)
