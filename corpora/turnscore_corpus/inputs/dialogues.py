"""Dialogues: the turns of a block's records, and what of them cannot be scored, with the reason and the place.

A turn that cannot be read is left out, and the dialogue is scored without it. Where the speaker is unknown, or nothing
is left to score, the whole dialogue is set aside. Reasons hold no text of a dialogue.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter, ValidationError
from turnscore_client._files.rows import choose_turns, name_field
from turnscore_wire import ChatMessage, ErrorCode, ErrorDetail, Limits, Turn, describe_refusal, map_messages

from turnscore_corpus.inputs.files import Columns
from turnscore_corpus.inputs.formats import RawRecord, text_of

_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_MESSAGES = TypeAdapter(list[ChatMessage])


class RefusedDialogueError(Exception):
    """No turn of a dialogue can be scored; the message says why."""

    def __init__(self, reason: str, *, field: str | None = None, row: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.field, self.row = reason, field, row


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDialogue:
    """A dialogue to score."""

    id: str
    row: int  # the number of its row, or of its first one
    turns_given: int  # how many turns or messages the input has
    turns: Sequence[Turn] = ()
    places: Sequence[int] = ()  # each turn's place, from 0, among the row's turns or messages
    rows: Sequence[int] = ()  # each turn's row
    system: str | None = None
    day: str | None = None

    @property
    def chars(self) -> int:
        return sum(len(each.text) for each in self.turns)


# A dialogue, its turns as they are given, to which its places and rows belong, and how errors name a field of one.
Draft = tuple[InputDialogue, Sequence[object], Callable[[int, str], str]]


def name_in(record: RawRecord, columns: Columns) -> str | None:
    """The dialogue's name, where the record has one: an empty cell counts as none."""
    return text_of((record.fields or {}).get(columns.id_column)) or None


def draft_row(record: RawRecord, columns: Columns) -> Draft:
    """The dialogue that is one row. Raises RefusedDialogueError."""
    fields = record.fields
    if fields is None or record.fault is not None:
        raise RefusedDialogueError(record.fault or "the row cannot be read")
    found = columns.dialogue_field(fields)
    if found is None:
        wanted = columns.turns or columns.messages or "turns"
        raise RefusedDialogueError(f"the row has no field {wanted!r}", field=wanted)
    field, holds_messages = found
    given: Sequence[object] = _list_in(fields[field], field)
    count, places = len(given), list(range(len(given)))
    if holds_messages:
        given, places = _read_messages(given, field)
    elif columns.speakers:
        given = [_with_speaker(each, columns) for each in given]

    def name(place: int, part: str) -> str:
        part = _OF_MESSAGES.get(part, part) if holds_messages else part
        return name_field(places[place], part, field)

    dialogue = InputDialogue(
        id=name_in(record, columns) or f"row {record.row}", row=record.row, turns_given=count, places=places,
        rows=[record.row] * len(given), **_carried(fields, columns),
    )  # fmt: skip
    return dialogue, given, name


def draft_rows(name: str, records: Sequence[RawRecord], columns: Columns) -> Draft:
    """The dialogue of which each record is a turn. Raises RefusedDialogueError."""
    for each in records:
        if each.fault is not None:
            raise RefusedDialogueError(each.fault, row=each.row)
        for column in (columns.speaker, columns.text):
            if column not in (each.fields or {}):
                raise RefusedDialogueError(f"the row has no field {column!r}", field=column, row=each.row)
    ordered = _in_order(records, columns.order)
    own = {"speaker": columns.speaker, "text": columns.text}
    cells = [{part: (each.fields or {})[column] for part, column in own.items()} for each in ordered]
    dialogue = InputDialogue(
        id=name, row=records[0].row, turns_given=len(records), places=range(len(records)),
        rows=[each.row for each in ordered], **_carried(ordered[0].fields or {}, columns),
    )  # fmt: skip
    given = [_with_speaker({**each, "text": "" if each["text"] is None else each["text"]}, columns) for each in cells]
    return dialogue, given, lambda _, part: own.get(part, part)


def _with_speaker(turn: object, columns: Columns) -> object:
    """The turn with the wire's word for its speaker."""
    if not isinstance(turn, Mapping) or "speaker" not in turn:
        return turn
    return {**turn, "speaker": columns.speaker_of(turn["speaker"])}


_OF_MESSAGES = {"speaker": "role", "text": "content"}


def _read_messages(listed: Sequence[object], field: str) -> tuple[Sequence[object], list[int]]:
    """The turns in messages, and for each the place of the message with its last text."""
    try:
        mapped = map_messages(_MESSAGES.validate_python(listed))
    except ValidationError as error:
        where, message = describe_refusal(error, field)
        raise RefusedDialogueError(message, field=where) from None
    return [each.model_dump() for each in mapped.turns], mapped.indices


def _list_in(value: object, field: str) -> list[Any]:
    """The list in a cell; a text is read as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RefusedDialogueError("the text is not a JSON list", field=field) from None
    if not isinstance(value, list):
        raise RefusedDialogueError("must be a list", field=field)
    return value


def _in_order(records: Sequence[RawRecord], column: str | None) -> Sequence[RawRecord]:
    """The records sorted by the numbers in the column; equal numbers keep their order."""
    if column is None:
        return records
    keys = []
    for each in records:
        try:
            keys.append(_number_in((each.fields or {})[column]))
        except (KeyError, TypeError, ValueError):
            raise RefusedDialogueError("must be a number: it orders the turns", field=column, row=each.row) from None
    return [records[place] for place in sorted(range(len(records)), key=keys.__getitem__)]


def _number_in(value: object) -> int | float | Decimal:
    """The number, exactly: identifiers and nanoseconds have more digits than a float. Raises TypeError, ValueError."""
    if isinstance(value, int | Decimal):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = float(value)
    if not isinstance(value, float):
        raise TypeError
    if math.isnan(value):
        raise ValueError("NaN has no place in an order")
    return value


def _carried(fields: Mapping[str, object], columns: Columns) -> dict[str, Any]:
    """What is written with the scores: the system's name, and the day of a date or time."""
    system = None if columns.system is None else text_of(fields.get(columns.system))
    given = None if columns.day is None else fields.get(columns.day)
    day = given.isoformat() if isinstance(given, date) else text_of(given)
    if day is not None and _ISO_DAY.match(day):
        day = day[:10]
    return {"system": system, "day": day}


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Something that was not scored: a whole dialogue where `turn` is None, a scorer's answer where `scorer` is set."""

    row: int
    code: str
    reason: str
    field: str | None = None
    dialogue: str | None = None
    turn: int | None = None
    scorer: str | None = None


Read = InputDialogue | SetAside


def read_dialogues(records: Iterable[RawRecord], columns: Columns, limits: Limits) -> Iterator[Read]:
    """The dialogues of the records in order, with what is set aside between them."""
    records = (each for each in records if each.fields is not None or each.fault is not None)  # no empty lines
    if columns.row == "dialogue":
        for record in records:
            yield from _read(partial(draft_row, record, columns), limits, record.row, name_in(record, columns))
        return
    nameless: list[SetAside] = []
    for name, group in groupby(_named(records, columns, nameless), lambda record: name_in(record, columns)):
        yield from nameless  # those before the group; what its own list takes in comes behind it
        nameless.clear()
        together = list(group)
        yield from _read(partial(draft_rows, name or "", together, columns), limits, together[0].row, name)
    yield from nameless


def _named(records: Iterable[RawRecord], columns: Columns, nameless: list[SetAside]) -> Iterator[RawRecord]:
    """The records that name a dialogue; the others are set aside, and do not cut the dialogue around them."""
    column = columns.id_column
    for each in records:
        if name_in(each, columns) is not None:
            yield each
        else:
            refused = RefusedDialogueError(f"the row names no dialogue in {column!r}", field=column)
            nameless.append(_whole(RefusedDialogueError(each.fault) if each.fault else refused, each.row, None))


def _read(draft: Callable[[], Draft], limits: Limits, row: int, name: str | None) -> Iterator[Read]:
    """The dialogue of the turns that can be read, preceded by what was left out of it."""
    try:
        dialogue, given, name_part = draft()
    except RefusedDialogueError as refused:
        yield _whole(refused, row, name)
        return
    chosen = choose_turns(given, limits, name_part)
    if (place := chosen.refused_place) is None:
        for each, error in chosen.left_out.items():
            yield refuse(dialogue, dialogue.rows[each], error, turn=dialogue.places[each])
    if chosen.refused is not None:
        yield refuse(dialogue, dialogue.row if place is None else dialogue.rows[place], chosen.refused)
        return
    places, rows = ([of_all[place] for place in chosen.places] for of_all in (dialogue.places, dialogue.rows))
    yield replace(dialogue, turns=chosen.turns, places=places, rows=rows)


def refuse(dialogue: InputDialogue, row: int, error: ErrorDetail, **where: Any) -> SetAside:
    """What of the dialogue was not scored; all of it, where no turn or scorer is named."""
    code, reason = error.code.value, error.message
    return SetAside(row=row, dialogue=dialogue.id, code=code, field=error.field, reason=reason, **where)


def _whole(refused: RefusedDialogueError, row: int, name: str | None) -> SetAside:
    return SetAside(
        row=refused.row or row,
        dialogue=name,
        code=ErrorCode.INVALID_REQUEST.value,
        reason=refused.reason,
        field=refused.field,
    )
