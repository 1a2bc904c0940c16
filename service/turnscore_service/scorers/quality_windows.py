"""Text rows: each text of a turn as rows of tokens of its own, the response in windows. Shared with training.

A row is `[CLS] text [SEP]`, for either speaker, anywhere in the dialogue: a text of a dialogue is computed once for all
the turns that read it. A context turn is one row and keeps its end; a response that does not fit one window is read in
overlapping windows, so that nothing of it up to `response_tokens` stays unread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

ROW_MARKS = 2
"""[CLS] and [SEP]."""

TokenIds = tuple[int, ...]


class WindowLayout(BaseModel):
    """How a turn becomes rows. Every context turn has a row of its own: a long response takes none of its room."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_turns: PositiveInt = 3
    """How many of the latest context turns are read."""
    turn_tokens: PositiveInt = 64
    """Tokens of a context turn that are read, from its end."""
    window_tokens: PositiveInt = 96
    """Tokens of the response in a row."""
    stride_tokens: PositiveInt = 64
    """How far a window begins after the one before it."""
    response_tokens: PositiveInt = Field(1024, description="What lies beyond so many tokens of a response is not read.")

    @model_validator(mode="after")
    def _windows_overlap(self) -> "WindowLayout":
        if self.stride_tokens > self.window_tokens:
            raise ValueError("stride_tokens is above window_tokens: text between two windows would not be read")
        return self

    @property
    def row_tokens(self) -> int:
        """The longest row."""
        return max(self.turn_tokens, self.window_tokens) + ROW_MARKS


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRows:
    """The rows of one turn: of the latest context turns, the latest first, and of the response's windows in order.

    `context_dropped` and `response_dropped` count tokens of the context and of the response that are in no row.
    """

    context: tuple[TokenIds, ...]
    windows: tuple[TokenIds, ...]
    context_dropped: int
    response_dropped: int


def lay_out_rows(
    context: Sequence[Sequence[int]], response: Sequence[int], layout: WindowLayout, first: int, separator: int
) -> TextRows:
    """The rows of a response (token ids) and its context (token ids of each turn, oldest first, none empty)."""
    latest = context[max(0, len(context) - layout.context_turns) :]
    kept = [ids[max(0, len(ids) - layout.turn_tokens) :] for ids in latest]
    read = response[: layout.response_tokens]
    windows = [read[start : start + layout.window_tokens] for start in window_starts(len(read), layout)]
    return TextRows(
        context=tuple((first, *ids, separator) for ids in reversed(kept)),
        windows=tuple((first, *ids, separator) for ids in windows),
        context_dropped=sum(map(len, context)) - sum(map(len, kept)),
        response_dropped=len(response) - len(read),
    )


def window_starts(tokens: int, layout: WindowLayout) -> list[int]:
    """Where the windows of a response of so many tokens begin; the last one ends with the response."""
    last = max(0, tokens - layout.window_tokens)
    return [*range(0, last, layout.stride_tokens), last]
