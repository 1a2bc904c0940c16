"""Dialogues: the turns of a block's records, and what of them cannot be scored, with the reason and the place.

A turn that cannot be read is left out, and the dialogue is scored without it. Where the speaker is unknown, or nothing
is left to score, the whole dialogue is set aside. Reasons hold no text of a dialogue.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter, ValidationError
from turnscore_wire import ChatMessage, ErrorCode, Limits, Turn, describe_refusal, map_messages
from turnscore_wire.json_lines import read_turn

from turnscore_corpus.inputs.files import Columns
from turnscore_corpus.inputs.formats import RawRecord

INVALID, TOO_LARGE = ErrorCode.INVALID_REQUEST.value, ErrorCode.TOO_LARGE.value
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_MESSAGES = TypeAdapter(list[ChatMessage])


class RefusedDialogueError(Exception):
    """No turn of a dialogue can be scored; the message says why."""

    def __init__(self, reason: str, *, code: str = INVALID, field: str | None = None, row: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.code, self.field, self.row = reason, code, field, row


@dataclass(frozen=True, slots=True)
class RawTurn:
    """A turn that is not checked yet."""

    speaker: object
    text: object
    place: int  # its place among the row's turns or messages, from 0
    row: int
    speaker_field: str
    text_field: str  # the field that an error names


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


# A dialogue without its turns, and these as they lie in the input.
Draft = tuple[InputDialogue, Sequence[RawTurn]]


def name_in(record: RawRecord, columns: Columns) -> str | None:
    """The dialogue's name, where the record has one: an empty cell counts as none."""
    return _text_of((record.fields or {}).get(columns.id_column)) or None


def draft_row(record: RawRecord, columns: Columns, limits: Limits) -> Draft:
    """The dialogue that is one row. Raises RefusedDialogueError."""
    fields = record.fields
    if fields is None or record.fault is not None:
        raise RefusedDialogueError(record.fault or "the row cannot be read")
    found = columns.dialogue_field(fields)
    if found is None:
        wanted = columns.turns or columns.messages or "turns"
        raise RefusedDialogueError(f"the row has no field {wanted!r}", field=wanted)
    field, holds_messages = found
    listed = _list_in(fields[field], field)
    _check_count(len(listed), field, limits)
    turns = _of_messages(listed, field, record.row) if holds_messages else _of_turns(listed, field, record.row, columns)
    name = name_in(record, columns) or f"row {record.row}"
    return InputDialogue(id=name, row=record.row, turns_given=len(listed), **_carried(fields, columns)), turns


def draft_rows(name: str, records: Sequence[RawRecord], columns: Columns, limits: Limits) -> Draft:
    """The dialogue of which each record is a turn. Raises RefusedDialogueError."""
    for each in records:
        if each.fault is not None:
            raise RefusedDialogueError(each.fault, row=each.row)
        for column in (columns.speaker, columns.text):
            if column not in (each.fields or {}):
                raise RefusedDialogueError(f"the row has no field {column!r}", field=column, row=each.row)
    _check_count(len(records), columns.id_column, limits)
    ordered = _in_order(records, columns.order)
    turns = []
    for place, each in enumerate(ordered):
        speaker, text = ((each.fields or {})[column] for column in (columns.speaker, columns.text))
        said = "" if text is None else text
        turns.append(RawTurn(columns.speaker_of(speaker), said, place, each.row, columns.speaker, columns.text))
    carried = _carried(ordered[0].fields or {}, columns)
    return InputDialogue(id=name, row=records[0].row, turns_given=len(turns), **carried), turns


def _of_turns(listed: Sequence[object], field: str, row: int, columns: Columns) -> list[RawTurn]:
    found = []
    for place, turn in enumerate(listed):
        if not isinstance(turn, Mapping):
            raise RefusedDialogueError("must be an object", field=f"{field}.{place}")
        speaker, at = columns.speaker_of(turn.get("speaker")), f"{field}.{place}"
        found.append(RawTurn(speaker, turn.get("text"), place, row, f"{at}.speaker", f"{at}.text"))
    return found


def _of_messages(listed: Sequence[object], field: str, row: int) -> list[RawTurn]:
    try:
        mapped = map_messages(_MESSAGES.validate_python(listed))
    except ValidationError as error:
        where, message = describe_refusal(error, field)
        raise RefusedDialogueError(message, field=where) from None
    return [
        RawTurn(turn.speaker, turn.text, index, row, f"{field}.{index}.role", f"{field}.{index}.content")
        for turn, index in zip(mapped.turns, mapped.indices, strict=True)
    ]


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


def _check_count(count: int, field: str, limits: Limits) -> None:
    if count > limits.max_turns:
        reason = f"{count} turns; at most {limits.max_turns} are allowed in one dialogue"
        raise RefusedDialogueError(reason, code=TOO_LARGE, field=field)


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
    system = None if columns.system is None else _text_of(fields.get(columns.system))
    given = None if columns.day is None else fields.get(columns.day)
    day = given.isoformat() if isinstance(given, date) else _text_of(given)
    if day is not None and _ISO_DAY.match(day):
        day = day[:10]
    return {"system": system, "day": day}


def _text_of(value: object) -> str | None:
    """A cell as text that every output can hold."""
    return None if value is None else str(value).encode("utf-8", "replace").decode()


def without_blanks(records: Iterable[RawRecord]) -> Iterable[RawRecord]:
    """The records that are no empty lines."""
    return (each for each in records if each.fields is not None or each.fault is not None)


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
    drafts = _drafts_of_rows if columns.row == "dialogue" else _drafts_of_turns
    for draft in drafts(without_blanks(records), columns, limits):
        if isinstance(draft, SetAside):
            yield draft
        else:
            yield from _choose_turns(draft, limits)


def _drafts_of_rows(records: Iterable[RawRecord], columns: Columns, limits: Limits) -> Iterator[Draft | SetAside]:
    for record in records:
        try:
            yield draft_row(record, columns, limits)
        except RefusedDialogueError as refused:
            yield _whole(refused, record.row, name_in(record, columns))


def _drafts_of_turns(records: Iterable[RawRecord], columns: Columns, limits: Limits) -> Iterator[Draft | SetAside]:
    nameless: list[SetAside] = []
    for name, group in groupby(_named(records, columns, nameless), lambda record: name_in(record, columns)):
        yield from nameless  # those before the group; what its own list takes in comes behind it
        nameless.clear()
        together = list(group)
        try:
            yield draft_rows(name or "", together, columns, limits)
        except RefusedDialogueError as refused:
            yield _whole(refused, together[0].row, name)
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


def _choose_turns(draft: Draft, limits: Limits) -> Iterator[Read]:
    """The dialogue of the turns that can be read, preceded by what was left out of it."""
    dialogue, given = draft
    turns: list[Turn] = []
    kept: list[RawTurn] = []
    left_out: list[SetAside] = []
    for raw in given:
        turn = read_turn({"speaker": raw.speaker, "text": raw.text}, limits)
        if isinstance(turn, Turn):
            turns.append(turn)
            kept.append(raw)
        elif turn.field == "text":
            left_out.append(
                SetAside(row=raw.row, dialogue=dialogue.id, turn=raw.place, code=turn.code.value, reason=turn.message,
                         field=raw.text_field)
            )  # fmt: skip
        else:
            refused = RefusedDialogueError(turn.message, field=raw.speaker_field, row=raw.row)
            yield _whole(refused, dialogue.row, dialogue.id)
            return
    yield from left_out
    yield replace(dialogue, turns=turns, places=[each.place for each in kept], rows=[each.row for each in kept])


def _whole(refused: RefusedDialogueError, row: int, name: str | None) -> SetAside:
    return SetAside(
        row=refused.row or row, dialogue=name, code=refused.code, reason=refused.reason, field=refused.field
    )
