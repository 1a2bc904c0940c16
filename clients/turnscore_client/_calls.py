"""Calls: what each method of a client sends and reads, alike for both clients. Pure; refuses what the wire refuses."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from turnscore_wire import (
    REQUEST_ID_PATTERN,
    BatchReply,
    BatchRequest,
    CacheMode,
    ConversationMessage,
    ConversationOpening,
    DialogueReply,
    DialogueRequest,
    ModelsReply,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
    Speaker,
    Turn,
    tell_refusal,
)

from turnscore_client._errors import InvalidRequestError

TurnLike = Turn | Mapping[str, str] | tuple[str, str]
"""A turn: the wire's own type, a mapping with `speaker` and `text`, or such a pair."""

ItemLike = ScoreRequest | Mapping[str, Any]
"""One item of a batch: the wire's own type, or a mapping with `response` and what else `score` takes."""

Options = Mapping[str, Mapping[str, JsonValue]]
"""Options for each scorer, by its name."""

_CHOICES = ("scorers", "options", "deadline_ms", "cache", "cache_namespace")

_METADATA_NAME = r"(?!grpc-)[0-9a-z_.-]{1,100}(?<!-bin)"
"""A key of gRPC metadata that holds text (gRPC over HTTP/2, Custom-Metadata); every HTTP header's name may be one."""
_METADATA_VALUE = r"[!-~]([ -~]*[!-~])?"
_OWN_METADATA = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"}
    | {"host", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-api-key", "x-request-id"}
)
"""Names whose values are this package's, or its transports', to set."""

Request = ScoreRequest | BatchRequest | DialogueRequest | RankRequest
R = TypeVar("R", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)


@dataclass(frozen=True)
class Call(Generic[R]):
    """One checked call, ready to be sent any number of times."""

    method: str
    path: str
    rpc: str
    """The same call over gRPC."""
    reply_type: type[R]
    request: Request | None = None
    deadline_ms: int | None = None
    request_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What travels beside the request: headers over HTTP, metadata over gRPC."""

    def with_metadata(self, metadata: Mapping[str, str] | None) -> "Call[R]":
        """The same call with what the caller adds. Raises InvalidRequestError."""
        return replace(self, metadata=checked_metadata(metadata))

    def request_with(self, deadline_ms_left: Callable[[int | None], int]) -> Request | None:
        """The request, every deadline in it replaced by what is left of it."""
        return None if self.request is None else _with_deadlines(self.request, deadline_ms_left)

    def body(self, deadline_ms_left: Callable[[int | None], int]) -> bytes | None:
        """The same as JSON."""
        request = self.request_with(deadline_ms_left)
        return None if request is None else request.model_dump_json(exclude_unset=True).encode()


def score_call(
    context: Iterable[TurnLike],
    response: str,
    scorers: Sequence[str] | None,
    options: Options | None,
    deadline_ms: int | None,
    request_id: str | None,
    cache: CacheMode | None = None,
    cache_namespace: str | None = None,
) -> Call[ScoreReply]:
    """`POST /v1/score`."""
    fields = {
        "context": _turns(context),
        "response": response,
        **_choice(scorers, options, deadline_ms, cache, cache_namespace),
    }
    request = _checked(ScoreRequest, fields)
    return Call("POST", "/v1/score", "Score", ScoreReply, request, deadline_ms, checked_id(request_id))


def batch_call(
    items: Iterable[ItemLike],
    scorers: Sequence[str] | None,
    options: Options | None,
    deadline_ms: int | None,
    request_id: str | None,
    cache: CacheMode | None = None,
    cache_namespace: str | None = None,
) -> Call[BatchReply]:
    """`POST /v1/score_batch`; an item's own choice goes before the batch's."""
    choice = _choice(scorers, options, deadline_ms, cache, cache_namespace)
    listed = [_item(item, choice) for item in items] if _is_series(items) else items
    request = _checked(BatchRequest, {"items": listed})
    return Call("POST", "/v1/score_batch", "ScoreBatch", BatchReply, request, deadline_ms, checked_id(request_id))


def dialogue_call(
    turns: Iterable[TurnLike],
    scorers: Sequence[str] | None,
    options: Options | None,
    deadline_ms: int | None,
    request_id: str | None,
    cache: CacheMode | None = None,
    cache_namespace: str | None = None,
) -> Call[DialogueReply]:
    """`POST /v1/score_dialogue`."""
    request = _checked(
        DialogueRequest, {"turns": _turns(turns), **_choice(scorers, options, deadline_ms, cache, cache_namespace)}
    )
    return Call(
        "POST", "/v1/score_dialogue", "ScoreDialogue", DialogueReply, request, deadline_ms, checked_id(request_id)
    )


def rank_call(
    context: Iterable[TurnLike],
    candidates: Iterable[str],
    scorers: Sequence[str] | None,
    options: Options | None,
    weights: Mapping[str, float] | None,
    deadline_ms: int | None,
    request_id: str | None,
    cache: CacheMode | None = None,
    cache_namespace: str | None = None,
) -> Call[RankReply]:
    """`POST /v1/rank`."""
    fields = {
        "context": _turns(context),
        "candidates": list(candidates) if _is_series(candidates) else candidates,
        **_choice(scorers, options, deadline_ms, cache, cache_namespace),
    }
    if weights is not None:
        fields["weights"] = dict(weights) if isinstance(weights, Mapping) else weights
    return Call(
        "POST", "/v1/rank", "Rank", RankReply, _checked(RankRequest, fields), deadline_ms, checked_id(request_id)
    )


def opening_of(
    context: Iterable[TurnLike],
    scorers: Sequence[str] | None,
    options: Options | None,
    deadline_ms: int | None,
    cache: CacheMode | None,
    cache_namespace: str | None,
) -> ConversationOpening:
    """What opens a conversation."""
    choice = _choice(scorers, options, deadline_ms, cache, cache_namespace)
    return _checked(ConversationOpening, {"context": _turns(context), **choice})


def turn_message(speaker: Speaker, text: str, deadline_ms: int | None) -> ConversationMessage:
    """What says a turn in a conversation."""
    turn = {"speaker": speaker, "text": text}
    return _checked(
        ConversationMessage, {"turn": turn if deadline_ms is None else {**turn, "deadline_ms": deadline_ms}}
    )


def models_call(request_id: str | None) -> Call[ModelsReply]:
    """`GET /v1/models`."""
    return Call("GET", "/v1/models", "Models", ModelsReply, request_id=checked_id(request_id))


def _checked(request_type: type[Q], fields: Mapping[str, Any]) -> Q:
    try:
        return request_type.model_validate(fields)
    except ValidationError as error:
        raise invalid_request(error) from None


def invalid_request(error: ValidationError) -> InvalidRequestError:
    """The error of the first field at fault, as the service tells it: the rule and the path, never what it held."""
    field, message = tell_refusal(error)
    return InvalidRequestError(message, field)


def checked_id(request_id: str | None) -> str | None:
    """The id, where the service will keep it; it replaces any other with one of its own, without a word."""
    if request_id is None or (isinstance(request_id, str) and re.fullmatch(REQUEST_ID_PATTERN, request_id)):
        return request_id
    raise InvalidRequestError("must be 1 to 128 letters, digits or any of . _ : -", "request_id")


def checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """The pairs, their names in lower case, where both doors can carry them. Raises InvalidRequestError."""
    checked = {}
    for name, value in (metadata or {}).items():
        lowered = name.lower() if isinstance(name, str) else ""
        if not re.fullmatch(_METADATA_NAME, lowered) or lowered in _OWN_METADATA:
            raise InvalidRequestError("must have names of their own: a-z, 0-9, - _ . and not the client's", "metadata")
        if not isinstance(value, str) or not re.fullmatch(_METADATA_VALUE, value):
            raise InvalidRequestError("must be printable ASCII without spaces at its ends", f"metadata.{lowered}")
        checked[lowered] = value
    return checked


def _choice(scorers: Any, options: Any, deadline_ms: Any, cache: Any, cache_namespace: Any) -> dict[str, Any]:
    """Only what was given, so that only that is sent."""
    given = {
        "scorers": list(scorers) if _is_series(scorers) else scorers,
        "options": _plain_options(options),
        "deadline_ms": deadline_ms,
        "cache": cache,
        "cache_namespace": cache_namespace,
    }
    return {name: value for name, value in given.items() if value is not None}


def _item(item: Any, choice: Mapping[str, Any]) -> Any:
    """An item as a plain mapping; anything else is left for the wire types to refuse by its place."""
    if isinstance(item, ScoreRequest):
        item = {name: getattr(item, name) for name in item.model_fields_set}
    if not isinstance(item, Mapping):
        return item
    own = {name: value for name, value in item.items() if value is not None}
    named = _choice(*(own.pop(name, None) for name in _CHOICES))
    return {**choice, **named, **own, "context": _turns(own.get("context", ()))}


def _plain_options(options: Any) -> Any:
    if not isinstance(options, Mapping):
        return options
    return {name: dict(own) if isinstance(own, Mapping) else own for name, own in options.items()}


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
    if isinstance(request, BatchRequest):
        items = [item.model_copy(update={"deadline_ms": deadline_ms_left(item.deadline_ms)}) for item in request.items]
        return request.model_copy(update={"items": items})
    return request.model_copy(update={"deadline_ms": deadline_ms_left(request.deadline_ms)})
