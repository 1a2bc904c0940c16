"""Lays a turn out as rows of token ids, one for each text, and names the context's tokens. Shared with training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from turnscore_core.inference.padding import pad_rows, padded_width

Head = Literal["relevant", "fluent", "engaging", "sentiment", "continues", "overall"]
HEADS: tuple[Head, ...] = ("relevant", "fluent", "engaging", "sentiment", "continues", "overall")
"""What the graph says of a response: probabilities, and the sentiment from about -1 to 1."""
SIGNALS = (
    "frustrated",
    "corrects",
    "repeats_request",
    "does_not_understand",
    "wants_out",
    "asks_for_a_person",
    "abuse",
    "pleased",
    "engages",
    "disengages",
)
REACTIONS = ("satisfaction", *SIGNALS)
"""What it says of a user turn in the response's place: probabilities."""

ROW_MARKS = 2
"""[CLS] and [SEP]."""
CONTEXT_ROWS = 4
"""Context turns that a model may read, which the places of `lay_out_tokens` count."""
COMPARED_ROWS = 3
"""Of them, those whose mean vectors the graph compares with the response's: its `context_rows`."""
NO_ROW = -1
"""In the place of a context turn or token that there is not."""

TokenIds = tuple[int, ...]
Integers = NDArray[Any]


class RowLayout(BaseModel):
    """How a turn becomes rows. Every text has a row of its own: a long response takes none of its context's room."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_turns: PositiveInt = Field(4, le=CONTEXT_ROWS, description="How many of the latest context turns are read.")
    turn_tokens: PositiveInt = Field(64, description="Tokens of a context turn that are read, from its end.")
    response_tokens: PositiveInt = Field(254, description="Tokens of a response that are read.")
    response_end_tokens: int = Field(
        64, ge=0, description="Of a response with more, so many of them are its last ones; the middle is not read."
    )

    @property
    def row_tokens(self) -> int:
        """The longest row."""
        return max(self.turn_tokens, self.response_tokens) + ROW_MARKS


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRows:
    """The rows of one turn: of the response, and of the latest context turns, the latest first.

    `same_speaker` says of each context row whether the response's speaker said it. `context_dropped` and
    `response_dropped` count tokens that are in no row.
    """

    response: TokenIds
    context: tuple[TokenIds, ...]
    same_speaker: tuple[bool, ...]
    context_dropped: int
    response_dropped: int


def lay_out_rows(
    context: Sequence[tuple[bool, Sequence[int]]],
    response: Sequence[int],
    layout: RowLayout,
    first: int,
    separator: int,
) -> TurnRows:
    """The rows of a response (token ids) and its context.

    `context` has, for each turn, oldest first, whether the response's speaker said it, and its token ids, none empty.
    """
    latest = context[max(0, len(context) - layout.context_turns) :][::-1]
    kept = [ids[max(0, len(ids) - layout.turn_tokens) :] for _, ids in latest]
    read = list(response)
    if len(read) > layout.response_tokens:
        end = min(layout.response_end_tokens, layout.response_tokens - 1)
        read = [*read[: layout.response_tokens - end], *read[len(read) - end :]]
    return TurnRows(
        response=(first, *read, separator),
        context=tuple((first, *ids, separator) for ids in kept),
        same_speaker=tuple(same for same, _ in latest),
        context_dropped=sum(len(ids) for _, ids in context) - sum(map(len, kept)),
        response_dropped=len(response) - len(read),
    )


def lay_out_batch(turns: Sequence[TurnRows], pad_id: int) -> dict[str, Integers]:
    """The graph's inputs, int64, for a batch of turns; equal rows, such as one context of many responses, are one."""
    rows: dict[TokenIds, int] = {}
    for turn in turns:
        for row in (turn.response, *turn.context):
            rows.setdefault(row, len(rows))
    input_ids, attention_mask = pad_rows(list(rows), pad_id)
    compared = np.full((len(turns), COMPARED_ROWS), NO_ROW, dtype=np.int64)
    for number, turn in enumerate(turns):
        said = [rows[row] for row in turn.context[:COMPARED_ROWS]]
        compared[number, : len(said)] = said
    context_tokens, places = lay_out_tokens(turns, rows, input_ids.shape[1])
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "response_row": np.array([rows[turn.response] for turn in turns], dtype=np.int64),
        "context_rows": compared,
        "context_tokens": context_tokens,
        "places": places,
    }


def lay_out_tokens(turns: Sequence[TurnRows], rows: Mapping[TokenIds, int], width: int) -> tuple[Integers, Integers]:
    """The graph's `context_tokens` and `places`, int64 [turns, most context tokens of a turn].

    `rows` has the place of each context row among all rows, which are padded to `width`: a token is named by its row
    times the width plus its place in the row, NO_ROW where a turn has no more. Its place says how far back it was said
    (0 for the latest turn) and by whom: twice the distance, plus 1 where the response's speaker said it.
    """
    most = padded_width(max(1, *(sum(map(len, turn.context)) for turn in turns)))
    tokens = np.full((len(turns), most), NO_ROW, dtype=np.int64)
    places = np.zeros((len(turns), most), dtype=np.int64)
    for number, turn in enumerate(turns):
        end = 0
        for distance, (row, same) in enumerate(zip(turn.context, turn.same_speaker, strict=True)):
            begin, end = end, end + len(row)
            tokens[number, begin:end] = np.arange(rows[row] * width, rows[row] * width + len(row))
            places[number, begin:end] = 2 * distance + same
    return tokens, places
