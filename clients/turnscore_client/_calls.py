"""The calls of a service: their endpoints, and a checked request for each."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import turnscore_wire as wire
from pydantic import BaseModel, ValidationError

from turnscore_client._errors import InvalidRequestError
from turnscore_client._options import CHOICES, ItemLike, MessageLike, ScoringOptions, TurnLike, check_names

Request = wire.ScoreRequest | wire.BatchRequest | wire.DialogueRequest | wire.RankRequest | wire.SimilarityRequest
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[R_co]):
    """One call of the service; without a type of request it is a question without a body."""

    path: str
    rpc: str  # its name over gRPC
    reply_type: type[R_co]
    request_type: type[Request] | None = None

    @property
    def method(self) -> str:
        return "GET" if self.request_type is None else "POST"

    @property
    def request_message(self) -> str:
        """What the request is called in turnscore.proto."""
        return f"{self.rpc}Request" if self.request_type is None else self.request_type.__name__


SCORE = Endpoint(path="/v1/score", rpc="Score", reply_type=wire.ScoreReply, request_type=wire.ScoreRequest)
SCORE_BATCH = Endpoint(
    path="/v1/score_batch", rpc="ScoreBatch", reply_type=wire.BatchReply, request_type=wire.BatchRequest
)
SCORE_DIALOGUE = Endpoint(
    path="/v1/score_dialogue", rpc="ScoreDialogue", reply_type=wire.DialogueReply, request_type=wire.DialogueRequest
)
RANK = Endpoint(path="/v1/rank", rpc="Rank", reply_type=wire.RankReply, request_type=wire.RankRequest)
SIMILARITY = Endpoint(
    path="/v1/similarity", rpc="Similarity", reply_type=wire.SimilarityReply, request_type=wire.SimilarityRequest
)
MODELS = Endpoint(path="/v1/models", rpc="Models", reply_type=wire.ModelsReply)

ENDPOINTS: tuple[Endpoint[BaseModel], ...] = (SCORE, SCORE_BATCH, SCORE_DIALOGUE, RANK, SIMILARITY, MODELS)


# A key of gRPC metadata that holds text (gRPC over HTTP/2, Custom-Metadata); every HTTP header's name may be one.
_METADATA_NAME = r"(?!grpc-)[0-9a-z_.-]{1,100}(?<!-bin)"
_METADATA_VALUE = r"[!-~]([ -~]*[!-~])?"
# Names whose values are this package's, or its transports', to set.
_OWN_METADATA = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"}
    | {"host", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-api-key", "x-request-id"}
)

R = TypeVar("R", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Call(Generic[R]):
    """One checked call, ready to be sent any number of times."""

    endpoint: Endpoint[R]
    request: Request | None = None
    deadline_ms: int | None = None
    timeout_seconds: float | None = None
    request_id: str | None = None
    # Travels with the request: headers over HTTP, metadata over gRPC.
    metadata: Mapping[str, str] = field(default_factory=dict)

    def request_with(self, deadline_ms_left: Callable[[int | None], int]) -> Request | None:
        """The request, every deadline in it replaced by what is left of it."""
        return None if self.request is None else _with_deadlines(self.request, deadline_ms_left)

    def body(self, deadline_ms_left: Callable[[int | None], int]) -> bytes | None:
        request = self.request_with(deadline_ms_left)
        return None if request is None else request.model_dump_json(exclude_unset=True).encode()


def items_of(items: Iterable[ItemLike], given: ScoringOptions) -> Any:
    """The items of a batch; an item's own choice goes before the batch's."""
    choice = choice_of(given)
    return [_item(item, choice) for item in items] if _is_series(items) else items


def opening_of(
    context: Iterable[TurnLike], given: ScoringOptions, messages: Iterable[MessageLike] | None = None
) -> wire.ConversationOpening:
    return _checked(wire.ConversationOpening, {**dialogue_of("context", context, messages), **choice_of(given)})


def turn_message(speaker: wire.Speaker, text: str, deadline_ms: int | None) -> wire.ConversationMessage:
    return _conversation_message("turn", {"speaker": speaker, "text": text}, deadline_ms)


def messages_message(messages: Iterable[MessageLike], deadline_ms: int | None) -> wire.ConversationMessage:
    return _conversation_message("messages", {"messages": _messages(messages)}, deadline_ms)


def _conversation_message(kind: str, fields: dict[str, Any], deadline_ms: int | None) -> wire.ConversationMessage:
    own = fields if deadline_ms is None else {**fields, "deadline_ms": deadline_ms}
    return _checked(wire.ConversationMessage, {kind: own})


def read_messages(messages: Iterable[MessageLike]) -> wire.MappedMessages:
    """The turns in a chatbot's messages, as the service reads them: `turns`, and for each its message in `indices`.

    Raises InvalidRequestError with the field at fault, such as `messages.3.content.1.type`.
    """
    return wire.map_messages(_checked(wire.ConversationMessages, {"messages": _messages(messages)}).messages)


def make_call(endpoint: Endpoint[R], given: Mapping[str, object], fields: Mapping[str, Any] | None = None) -> Call[R]:
    """A call with its checked request. Raises InvalidRequestError."""
    options = cast("ScoringOptions", given)  # of which it may have some
    return Call(
        endpoint=endpoint,
        request=None if endpoint.request_type is None else _checked(endpoint.request_type, fields or {}),
        deadline_ms=options.get("deadline_ms"),
        timeout_seconds=options.get("timeout_seconds"),
        request_id=checked_id(options.get("request_id")),
        metadata=checked_metadata(options.get("metadata")),
    )


def _checked(request_type: type[Q], fields: Mapping[str, Any]) -> Q:
    try:
        return request_type.model_validate(fields)
    except ValidationError as error:
        raise invalid_request(error) from None


def invalid_request(error: ValidationError) -> InvalidRequestError:
    """The error of the first field at fault, as the service reports it: rule and path, never the field's value."""
    field, message = wire.describe_refusal(error)
    return InvalidRequestError(message, field)


def checked_id(request_id: str | None) -> str | None:
    """The id, where the service will keep it; it replaces any other with one of its own, without a word."""
    if request_id is None or (isinstance(request_id, str) and re.fullmatch(wire.REQUEST_ID_PATTERN, request_id)):
        return request_id
    raise InvalidRequestError("must be 1 to 128 letters, digits or any of . _ : -", "request_id")


def checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """The pairs, their names in lower case, where both HTTP and gRPC can carry them. Raises InvalidRequestError."""
    checked = {}
    for name, value in (metadata or {}).items():
        lowered = name.lower() if isinstance(name, str) else ""
        if not re.fullmatch(_METADATA_NAME, lowered) or lowered in _OWN_METADATA:
            raise InvalidRequestError("must have names of their own: a-z, 0-9, - _ . and not the client's", "metadata")
        if not isinstance(value, str) or not re.fullmatch(_METADATA_VALUE, value):
            raise InvalidRequestError("must be printable ASCII without spaces at its ends", f"metadata.{lowered}")
        checked[lowered] = value
    return checked


def choice_of(given: ScoringOptions) -> dict[str, Any]:
    """What was given about the scoring. Raises TypeError for a name that no option has."""
    check_names(given, ScoringOptions.__optional_keys__)
    return chosen(given)


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was given, so that only that is sent."""
    return {name: plain(given[name]) for name in CHOICES if given.get(name) is not None}


def _item(item: Any, choice: Mapping[str, Any]) -> Any:
    """An item as a plain mapping; anything else is left for the wire types to refuse by its place."""
    if isinstance(item, wire.ScoreRequest):
        item = {name: getattr(item, name) for name in item.model_fields_set}
    if not isinstance(item, Mapping):
        return item
    own = {name: value for name, value in item.items() if value is not None}
    return {**choice, **own, **chosen(own), **dialogue_of("context", own.get("context", ()), own.get("messages"))}


def plain(value: Any) -> Any:
    """Lists and dicts of whatever series and mappings were given."""
    if isinstance(value, Mapping):
        return {name: dict(own) if isinstance(own, Mapping) else own for name, own in value.items()}
    return list(value) if _is_series(value) else value


def dialogue_of(field: str, turns: Any, messages: Any) -> dict[str, Any]:
    """The field that holds the turns, or `messages`; both where both are given, to be refused."""
    if messages is None:
        return {field: _turns(turns)}
    given = {field: read} if (read := _turns(turns)) else {}
    return {**given, "messages": _messages(messages)}


def _messages(messages: Any) -> Any:
    return [_message(each) for each in messages] if _is_series(messages) else messages


def _message(message: Any) -> Any:
    """A mapping or the wire's own type; what a library keeps as a model of its own is asked for its fields."""
    if isinstance(message, wire.ChatMessage | Mapping) or not hasattr(message, "model_dump"):
        return message
    return message.model_dump()


def _turns(turns: Any) -> Any:
    return [_turn(turn) for turn in turns] if _is_series(turns) else turns


def _turn(turn: Any) -> Any:
    if isinstance(turn, Mapping):
        return dict(turn)
    if isinstance(turn, tuple | list) and len(turn) == 2:
        return {"speaker": turn[0], "text": turn[1]}
    return turn


def _is_series(value: object) -> bool:
    """Whether it is several things in a row; a string is one thing."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | BaseModel)


def _with_deadlines(request: Request, deadline_ms_left: Callable[[int | None], int]) -> Request:
    if isinstance(request, wire.BatchRequest):
        items = [item.model_copy(update={"deadline_ms": deadline_ms_left(item.deadline_ms)}) for item in request.items]
        return request.model_copy(update={"items": items})
    return request.model_copy(update={"deadline_ms": deadline_ms_left(request.deadline_ms)})
