"""Evaluations: what the scores of a reply are as attributes of events and spans, none of which holds a text. Pure."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from pydantic import BaseModel
from turnscore_wire import (
    BatchReply,
    ConversationScored,
    DialogueReply,
    ErrorDetail,
    RankReply,
    Score,
    ScoreReply,
    Timing,
)

from turnscore_service.telemetry import names
from turnscore_service.telemetry.recorder import EndedCall

Attributes: TypeAlias = dict[str, str | int | float | bool]
_Turn: TypeAlias = tuple[Attributes, Mapping[str, Score], Mapping[str, ErrorDetail]]
_PREFIX = "turnscore."


def evaluations_of(ended: EndedCall) -> Iterator[Attributes]:
    """The attributes of an event for each score and for each scorer that failed."""
    for place, scores, errors in _turns_of(ended.reply):
        for name, score in scores.items():
            yield {**place, names.REQUEST_ID: ended.request_id, **_evaluation(name, score)}
        for name, error in errors.items():
            yield {
                **place,
                names.REQUEST_ID: ended.request_id,
                names.EVALUATION_NAME: _PREFIX + name,
                names.ERROR_TYPE: str(error.code),
            }


def timing_attributes(ended: EndedCall) -> Attributes:
    """How many turns a call scored, and where its time went."""
    turns = list(_turns_of(ended.reply))
    if not turns:
        return {}
    scores = list(chain.from_iterable(scores.values() for _, scores, _ in turns))
    timings = _timings_of(ended.reply)
    return {
        names.TURNS: len(turns),
        names.CACHED: sum(score.cached for score in scores),
        names.TOKENIZE: max(timing.tokenize for timing in timings) / 1000,
        names.QUEUE: max(timing.queue for timing in timings) / 1000,
        names.INFERENCE: max(timing.inference for timing in timings) / 1000,
        names.CACHE: max(timing.cache for timing in timings) / 1000,
    }


def _evaluation(name: str, score: Score) -> Attributes:
    known: dict[str, str | float | bool | None] = {
        names.EVALUATION_NAME: _PREFIX + name,
        names.EVALUATION_VALUE: score.value,
        names.EVALUATION_LABEL: score.label,
        names.EVALUATION_EXPLANATION: _explain(score.percentile),
        names.MODEL: score.model,
        names.PERCENTILE: score.percentile,
        names.STAND_IN: score.stand_in or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _explain(percentile: float | None) -> str | None:
    return None if percentile is None else f"{percentile:.0f} of 100 reference turns score lower"


def _turns_of(reply: BaseModel | None) -> Iterator[_Turn]:
    if isinstance(reply, ScoreReply):
        yield {}, reply.scores, reply.errors
    elif isinstance(reply, ConversationScored):
        yield {names.TURN_INDEX: reply.index}, reply.scores, reply.errors
    elif isinstance(reply, BatchReply):
        for index, result in enumerate(reply.results):
            if isinstance(result, ScoreReply):
                yield {names.ITEM_INDEX: index}, result.scores, result.errors
    elif isinstance(reply, DialogueReply):
        for turn in reply.turns:
            yield {names.TURN_INDEX: turn.index}, turn.scores, turn.errors
    elif isinstance(reply, RankReply):
        for candidate in reply.candidates:
            yield {names.CANDIDATE_INDEX: candidate.index}, candidate.scores, candidate.errors


def _timings_of(reply: BaseModel | None) -> list[Timing]:
    if isinstance(reply, BatchReply):
        return [result.timing_ms for result in reply.results if isinstance(result, ScoreReply)]
    return [reply.timing_ms] if isinstance(reply, ScoreReply | DialogueReply | RankReply | ConversationScored) else []
