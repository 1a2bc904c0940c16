"""The wire: what travels between turnscore and its callers. Types, error codes and limits; no I/O."""

from turnscore_wire.errors import ERROR_TABLE, ErrorCode, ErrorDetail, ErrorReply, ErrorRule
from turnscore_wire.limits import MAX_DEADLINE_MS, REQUEST_ID_PATTERN, Limits
from turnscore_wire.refusals import BODY_FIELD, tell_refusal
from turnscore_wire.replies import (
    BatchReply,
    DialogueAggregate,
    DialogueReply,
    DialogueTurnScores,
    HealthReply,
    ModelDescription,
    ModelsReply,
    Score,
    ScoreReply,
    Timing,
    TokenCount,
)
from turnscore_wire.requests import BatchRequest, DialogueRequest, ScoreRequest, Speaker, Turn

__all__ = [
    "BODY_FIELD",
    "ERROR_TABLE",
    "MAX_DEADLINE_MS",
    "REQUEST_ID_PATTERN",
    "BatchReply",
    "BatchRequest",
    "DialogueAggregate",
    "DialogueReply",
    "DialogueRequest",
    "DialogueTurnScores",
    "ErrorCode",
    "ErrorDetail",
    "ErrorReply",
    "ErrorRule",
    "HealthReply",
    "Limits",
    "ModelDescription",
    "ModelsReply",
    "Score",
    "ScoreReply",
    "ScoreRequest",
    "Speaker",
    "Timing",
    "TokenCount",
    "Turn",
    "tell_refusal",
]
