"""The calls of the JSON transports as gRPC has them: the method's name, and the message that says the same."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message
from turnscore_wire import ChatMessage
from turnscore_wire.v1 import to_message, turnscore_pb2

METHODS = {
    "score": "Score",
    "score_batch": "ScoreBatch",
    "score_dialogue": "ScoreDialogue",
    "rank": "Rank",
    "similarity": "Similarity",
}
_MESSAGES: dict[str, type[Message]] = {
    "score": turnscore_pb2.ScoreRequest,
    "score_batch": turnscore_pb2.BatchRequest,
    "score_dialogue": turnscore_pb2.DialogueRequest,
    "rank": turnscore_pb2.RankRequest,
    "similarity": turnscore_pb2.SimilarityRequest,
    "conversations": turnscore_pb2.ConversationMessage,
}


def message_of(call: str, fields: Mapping[str, Any]) -> Message:
    """The message with the fields, set as a caller with generated code sets them.

    Raises TypeError, ValueError, AttributeError or KeyError where no message can hold them.
    """
    return _MESSAGES[call](**_as_arguments(fields))


def _as_arguments(fields: Any) -> Any:
    if isinstance(fields, list):
        return [_as_arguments(each) for each in fields]
    if not isinstance(fields, dict):
        return fields
    arguments = {name: _as_arguments(value) for name, value in fields.items() if name != "options"}
    if "speaker" in arguments:
        arguments["speaker"] = f"SPEAKER_{arguments['speaker'].upper()}"
    if "cache" in arguments:
        arguments["cache"] = f"CACHE_MODE_{arguments['cache'].upper()}"
    if isinstance(fields.get("messages"), list):
        arguments["messages"] = [to_message(ChatMessage.model_validate(each)) for each in fields["messages"]]
    if "options" in fields:
        holder = turnscore_pb2.ScoreRequest()
        for name, options in fields["options"].items():
            holder.options[name].update(options)
        arguments["options"] = holder.options
    return arguments
