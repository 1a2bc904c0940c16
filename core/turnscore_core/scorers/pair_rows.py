"""Pair rows: what was said and the response as the one row that a BERT or RoBERTa reads, and its masked copies.

Training and serving share it. BERT's row is `[CLS] said [SEP] response [SEP]`, RoBERTa's `<s> said </s></s> response
</s>`. Knows no model and no text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turnscore_core.inference.text_tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMarks:
    """The tokens that are no text: before the row, between its halves and behind it, the padding and the mask."""

    first: int
    between: tuple[int, ...]
    last: int
    pad: int
    mask: int | None = None

    @property
    def count(self) -> int:
        """Tokens of a row that are marks."""
        return len(self.between) + 2


def marks_of(tokenizer: TextTokenizer) -> PairMarks:
    """The marks of the tokenizer's family."""
    separator = tokenizer.separator_id
    return PairMarks(
        first=tokenizer.first_id,
        between=(separator,) * tokenizer.separators,
        last=separator,
        pad=tokenizer.pad_id,
        mask=tokenizer.mask_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """Token ids, where the response's begin and end, and how many of each half were left out."""

    ids: tuple[int, ...]
    response_start: int
    response_end: int
    said_dropped: int
    response_dropped: int


def lay_out_pair(
    said: Sequence[int], response: Sequence[int], marks: PairMarks, *, token_limit: int, response_tokens: int
) -> PairRow:
    """A row of at most `token_limit` tokens, of which the response takes its first `response_tokens`, as far as it has.

    What is left is the said half's end. Nothing was said: the row begins with the response's half all the same.
    """
    kept = response[: min(response_tokens, token_limit - marks.count)]
    room = token_limit - marks.count - len(kept)
    before = said[max(0, len(said) - room) :]
    start = 1 + len(before) + len(marks.between)
    return PairRow(
        ids=(marks.first, *before, *marks.between, *kept, marks.last),
        response_start=start,
        response_end=start + len(kept),
        said_dropped=len(said) - len(before),
        response_dropped=len(response) - len(kept),
    )


def masked_copies(ids: Sequence[int], start: int, end: int, mask: int) -> list[tuple[tuple[int, ...], int, int]]:
    """For each token from `start` to `end` a copy of the row without it: (ids, its place, what stood there)."""
    return [((*ids[:place], mask, *ids[place + 1 :]), place, ids[place]) for place in range(start, end)]
