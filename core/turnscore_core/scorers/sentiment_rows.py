"""Dialogue rows: context and response as the one row of tokens that a BERT reads. Training and serving share it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt

TurnMarks = Literal["separator", "speaker"]


class RowLayout(BaseModel):
    """How a turn and its context become a row: `[CLS] context [SEP] response [SEP]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_turns: NonNegativeInt
    """How many of the latest context turns the model reads."""
    turn_marks: TurnMarks
    """`separator`: [SEP] between context turns. `speaker`: [unused0] before a user's, [unused1] before a system's."""
    response_segment: Literal[0, 1]
    """Segment id of the response and its [SEP]; the context's is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """Ids of the tokens that mark a row's parts."""

    first: int
    separator: int
    user: int
    system: int


@dataclass(frozen=True, slots=True)
class DialogueRow:
    """Token ids of one row, where its response begins, and how many of the texts' tokens were left out."""

    ids: tuple[int, ...]
    response_start: int
    dropped: int


def lay_out_row(
    context: Sequence[tuple[str, Sequence[int]]],
    response: Sequence[int],
    layout: RowLayout,
    special: SpecialTokens,
    token_limit: int,
) -> DialogueRow:
    """One row of at most `token_limit` tokens from (speaker, ids) of the context's turns, oldest first, and a response.

    The response comes first: it keeps its beginning, up to the limit. The context fills what is left from its latest
    turn backwards, and its oldest part is cut.
    """
    kept_response = response[: token_limit - 3]
    room = token_limit - 3 - len(kept_response)
    spoken = [turn for turn in context if turn[1]]
    body: list[int] = []
    kept_tokens = len(kept_response)
    for speaker, ids in reversed(spoken[max(0, len(spoken) - layout.context_turns) :]):
        after = [special.separator] if body and layout.turn_marks == "separator" else []
        before = [special.user if speaker == "user" else special.system] if layout.turn_marks == "speaker" else []
        kept = ids[max(0, len(ids) - max(0, room - len(before) - len(after))) :]
        if not kept:
            break
        body = [*before, *kept, *after, *body]
        room -= len(before) + len(kept) + len(after)
        kept_tokens += len(kept)
    total = sum(len(ids) for _, ids in context) + len(response)
    row = (special.first, *body, special.separator, *kept_response, special.separator)
    return DialogueRow(row, len(body) + 2, total - kept_tokens)
