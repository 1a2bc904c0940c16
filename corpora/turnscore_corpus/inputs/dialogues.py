"""Dialogues: the turns of a block's records, and what of them cannot be scored, with the reason and the place.

A turn that cannot be read is left out, and the dialogue is scored without it. Where the speaker is unknown, or nothing
is left to score, the whole dialogue is set aside. Reasons hold no text of a dialogue.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import ValidationError
from turnscore_wire import Limits, Turn, describe_refusal

from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.drafts import (
    TOO_LARGE,
    Draft,
    RawTurn,
    RefusedDialogueError,
    draft_row,
    draft_rows,
    name_in,
    without_blanks,
)
from turnscore_corpus.inputs.raw_record import RawRecord

SILENT = "the system said nothing"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDialogue:
    """A dialogue to score."""

    id: str
    row: int
    """The number of its row, or of its first one."""
    turns: Sequence[Turn]
    places: Sequence[int]
    """Each turn's place, from 0, among the row's turns or messages."""
    rows: Sequence[int]
    """Each turn's row."""
    said: int
    """How many turns or messages the input has."""
    system: str | None = None
    day: str | None = None

    @property
    def chars(self) -> int:
        return sum(len(each.text) for each in self.turns)


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
        elif each.fault is not None:
            nameless.append(_whole(RefusedDialogueError(each.fault), each.row, None))
        else:
            refused = RefusedDialogueError(f"the row names no dialogue in {column!r}", field=column)
            nameless.append(_whole(refused, each.row, None))


def _choose_turns(draft: Draft, limits: Limits) -> Iterator[Read]:
    """The dialogue of the turns that can be read, preceded by what was left out of it."""
    turns: list[Turn] = []
    kept: list[RawTurn] = []
    left_out: list[SetAside] = []
    for raw in draft.turns:
        try:
            turn = _turn_of(raw, limits)
        except RefusedDialogueError as refused:
            if refused.field == raw.speaker_field:
                yield _whole(refused, draft.row, draft.id)
                return
            left_out.append(
                SetAside(row=raw.row, dialogue=draft.id, turn=raw.place, code=refused.code, reason=refused.reason,
                         field=refused.field)
            )  # fmt: skip
        else:
            turns.append(turn)
            kept.append(raw)
    yield from left_out
    if all(turn.speaker != "system" for turn in turns):
        yield _whole(RefusedDialogueError("there is no system turn to score"), draft.row, draft.id)
        return
    yield InputDialogue(
        id=draft.id,
        row=draft.row,
        turns=turns,
        places=[each.place for each in kept],
        rows=[each.row for each in kept],
        said=draft.said,
        system=draft.system,
        day=draft.day,
    )


def _turn_of(raw: RawTurn, limits: Limits) -> Turn:
    """The turn. Raises RefusedDialogueError, which names the field of its speaker or of its text."""
    if raw.speaker not in ("user", "system"):
        raise RefusedDialogueError("must be `user` or `system`", field=raw.speaker_field, row=raw.row)
    try:
        turn = Turn.model_validate({"speaker": raw.speaker, "text": raw.text})
    except ValidationError as error:
        raise RefusedDialogueError(describe_refusal(error)[1], field=raw.text_field) from None
    if len(turn.text) > limits.max_text_chars:
        reason = f"{len(turn.text)} characters; at most {limits.max_text_chars} are allowed"
        raise RefusedDialogueError(reason, code=TOO_LARGE, field=raw.text_field)
    if turn.speaker == "system" and not turn.text.strip():
        raise RefusedDialogueError(SILENT, field=raw.text_field)
    return turn


def _whole(refused: RefusedDialogueError, row: int, name: str | None) -> SetAside:
    return SetAside(
        row=refused.row or row, dialogue=name, code=refused.code, reason=refused.reason, field=refused.field
    )
