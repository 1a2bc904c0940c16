"""Rows: what is asked for a line of the input, and the row that its reply becomes. Pure.

A row is the line's object with everything in it, its number, and the reply. The scores of a dialogue's turn stand in
the turn, or the message, that they are of. Fields of the line, or of a turn, that are named as one of ours stand in
`input` there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError
from turnscore_wire import DialogueReply, DialogueRequest, ErrorDetail, Limits, ScoreReply, ScoreRequest, Turn
from turnscore_wire import describe_refusal as describe_fault

from turnscore_client._errors import InvalidRequestError, ServiceError, TurnScoreError, UnexpectedReplyError

Fields = dict[str, Any]

_KINDS = ("turns", "response", "messages")
"""What a line is, by the first of these fields that it has."""
_OURS = frozenset({"line", "error", "errors", "scores", "timing_ms", "request_id", "skipped"})
"""What a row may hold of ours; that of a dialogue also has `dialogue`."""
_OF_A_TURN = frozenset({"index", "scores", "errors", "error"})
"""What a dialogue's turn may hold of ours."""
_SET_ASIDE = "input"
"""Where the line's own fields of such a name are kept."""


@dataclass(kw_only=True)
class Asked:
    """A line's request, and what is known of the turns that are not part of it."""

    fields: Fields
    """What the client's method takes."""
    kept: Fields
    """The line's own fields, as `keep` gives them."""
    kind: str
    places: list[int] = field(default_factory=list)
    """Of the turns that are asked, where they stand in the line."""
    left_out: dict[int, ErrorDetail] = field(default_factory=dict)
    """The turns that cannot be asked, by their place in the line."""


def read_line(raw: bytes, scorers: Sequence[str] | None, limits: Limits) -> Asked:
    """What is asked for a line. Raises InvalidRequestError for one of which nothing can be scored."""
    fields = _parse(raw)
    kinds = [kind for kind in _KINDS if kind in fields]
    if not kinds or ("turns" in kinds and len(kinds) > 1):
        raise InvalidRequestError("the line must have either `turns`, or `response` or `messages`")
    kind, known = kinds[0], ScoreRequest.model_fields if "response" in fields else DialogueRequest.model_fields
    request = {name: value for name, value in fields.items() if name in known}
    if request.get("scorers") is None:
        request["scorers"] = scorers
    asked = Asked(fields=request, kept=keep(fields), kind=kind)
    if kind == "turns":
        _choose_turns(asked, limits)
    elif isinstance(request.get("context"), list):
        request["context"] = [_bare(turn) for turn in request["context"]]
    return asked


def keep(fields: Mapping[str, Any]) -> Fields:
    """A line's fields: those named as one of ours in `input`, or, of a row of an earlier run, left out."""
    is_dialogue = _kind_of(fields) in ("turns", "messages")
    take = _leave_out if _is_row(fields) else _set_aside
    kept = take(fields, _OURS | {"dialogue"} if is_dialogue else _OURS)
    for name in ("turns", "messages"):
        if is_dialogue and isinstance(kept.get(name), list):
            kept[name] = [take(turn, _OF_A_TURN) if isinstance(turn, dict) else turn for turn in kept[name]]
    return kept


def _kind_of(fields: Mapping[str, Any]) -> str | None:
    return next((kind for kind in _KINDS if kind in fields), None)


def _is_row(fields: Mapping[str, Any]) -> bool:
    """Whether the line is a row of an earlier run: it has a number, and a reply or our error."""
    error = fields.get("error")
    return isinstance(fields.get("line"), int) and (
        isinstance(fields.get("timing_ms"), dict) or (isinstance(error, dict) and {"code", "message"} <= error.keys())
    )


def _leave_out(fields: Mapping[str, Any], ours: frozenset[str]) -> Fields:
    return {name: value for name, value in fields.items() if name not in ours}


def _set_aside(fields: Mapping[str, Any], ours: frozenset[str]) -> Fields:
    if ours.isdisjoint(fields):
        return dict(fields)
    ours = ours | {_SET_ASIDE}
    return {**_leave_out(fields, ours), _SET_ASIDE: {name: value for name, value in fields.items() if name in ours}}


def kept_of(raw: bytes) -> Fields:
    """Of a line that may be broken, what a row keeps."""
    try:
        return keep(_parse(raw))
    except InvalidRequestError:
        return {}


def row_of(asked: Asked, reply: ScoreReply | DialogueReply) -> Fields:
    """The row, without its number. Raises UnexpectedReplyError where a number in it is infinite or none."""
    plain = reply.model_dump(mode="json")
    if isinstance(reply, ScoreReply):
        row = {**asked.kept, **{name: value for name, value in plain.items() if name not in ("index", "skipped")}}
    else:
        row = {**asked.kept, **plain, asked.kind: _with_scores(asked, plain.pop("turns"))}
        row.pop("turns" if asked.kind == "messages" else "skipped", None)
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        raise UnexpectedReplyError("the reply holds a number that is not JSON", 200) from None
    return row


def is_row_of(row: Mapping[str, Any], raw: bytes) -> bool:
    """Whether the row can have come of the line: everything of the line that a row keeps is in it."""
    kept, written = kept_of(raw), keep({**row, "timing_ms": {}})
    return all(name in written and written[name] == value for name, value in kept.items())


def failures_in(row: Mapping[str, Any]) -> list[str]:
    """What went wrong in a row, one sentence each: the line's error, its turns' and its scorers'."""
    if isinstance(row.get("error"), dict):
        return [_sentence("", row["error"])]
    found = [_sentence(f"{scorer}: ", error) for scorer, error in (row.get("errors") or {}).items()]
    for place, turn in enumerate(turns_in(row)):
        if not isinstance(turn, dict):
            continue
        if isinstance(error := turn.get("error"), dict) and not is_blank(error):
            found.append(_sentence(f"turn {place}: ", error))
        found += [_sentence(f"turn {place}: {scorer}: ", each) for scorer, each in (turn.get("errors") or {}).items()]
    return found


def turns_in(row: Mapping[str, Any]) -> list[Any]:
    """The turns, or messages, of a dialogue's row."""
    turns = row.get("messages") if "messages" in row else row.get("turns")
    return turns if isinstance(turns, list) else []


def describe(error: TurnScoreError) -> Fields:
    """The error as an object of the output, in the wire's form."""
    if isinstance(error, ServiceError):
        return error.detail().model_dump(mode="json", exclude_none=True)
    return {"code": error.code, "message": str(error)}


_BLANK = "the system said nothing"


def is_blank(error: Mapping[str, Any]) -> bool:
    """Whether a turn is not scored because nothing was said, which is no failure."""
    return error.get("message") == _BLANK


def _choose_turns(asked: Asked, limits: Limits) -> None:
    """Asks the turns that can be scored or read; names the others, of which the context then has nothing."""
    turns = asked.fields.get("turns")
    if not isinstance(turns, list):
        return
    chosen = []
    for place, turn in enumerate(turns):
        bare = _bare(turn)
        error = _fault(bare, place, limits)
        if error is None:
            chosen.append(bare)
            asked.places.append(place)
        else:
            asked.left_out[place] = error
    if turns and not chosen:
        raise InvalidRequestError("there is no turn that can be scored", "turns")
    asked.fields["turns"] = chosen


def _fault(turn: object, place: int, limits: Limits) -> ErrorDetail | None:
    """Why the turn cannot be part of the request. Raises InvalidRequestError where nobody can tell who speaks."""
    field = f"turns.{place}"
    try:
        read = Turn.model_validate(turn)
    except ValidationError as error:
        where, message = describe_fault(error, field)
        if where != f"{field}.text":
            raise InvalidRequestError(message, where) from None
        return InvalidRequestError(message, where).detail()
    if len(read.text) > limits.max_text_chars:
        message = f"{len(read.text)} characters; at most {limits.max_text_chars} are allowed"
        return ErrorDetail(code="too_large", message=message, field=f"{field}.text")
    if read.speaker == "system" and not read.text.strip():
        return InvalidRequestError(_BLANK, f"{field}.text").detail()
    return None


def _bare(turn: object) -> object:
    """A turn without the fields that the wire does not know."""
    return {name: turn[name] for name in ("speaker", "text") if name in turn} if isinstance(turn, dict) else turn


def _with_scores(asked: Asked, scored: Sequence[Fields]) -> list[Any]:
    """The line's turns, those that were scored with their scores, those that were left out with the reason."""
    places = {asked.places[turn["index"]] if asked.kind == "turns" else turn["index"]: turn for turn in scored}
    written = []
    for place, turn in enumerate(asked.kept[asked.kind]):
        own = turn
        if place in places:
            own = {**turn, **places[place], "index": place}
        elif place in asked.left_out:
            own = {**turn, "error": asked.left_out[place].model_dump(mode="json", exclude_none=True)}
        written.append(own)
    return written


def _sentence(where: str, error: Mapping[str, Any]) -> str:
    field = f" ({error['field']})" if error.get("field") else ""
    return f"{where}{error.get('code')}{field}: {error.get('message')}"


def _parse(raw: bytes) -> Fields:
    try:
        fields = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidRequestError(f"the line is not JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("the line is not a JSON object")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is larger than a number can be")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
