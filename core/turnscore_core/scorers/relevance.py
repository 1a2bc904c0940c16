"""Relevance: does this response fit what was said before it? For any BERT or RoBERTa, in one of two forms.

`joint`: one row of what was said and the response (USR's retrieval, 3P, any cross-encoder of the hub). BERT's row is
`[CLS] said [SEP] response [SEP]`, RoBERTa's `<s> said </s></s> response </s>`. `apart`: a row each, which the graph
compares (contextualised RUBER, PONE), as engagement does.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from turnscore_models.bundle import Bundle

from turnscore_core.inference.onnx_backend import Array, Backend, pad_rows
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.history import CHARS_PER_TOKEN, history_of, keep_beginning, keep_ends_of
from turnscore_core.scorers.scorer import Fields, RawScore, Scorer, TokenPack, TokenRow, TurnToScore, pack_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """Token ids, where the response's begin and end, and how many of each half were left out."""

    ids: tuple[int, ...]
    response_start: int
    response_end: int
    said_dropped: int
    response_dropped: int


def lay_out_pair(
    said: Sequence[int], response: Sequence[int], tokenizer: TextTokenizer, *, token_limit: int, response_tokens: int
) -> PairRow:
    """A row of at most `token_limit` tokens, of which the response takes its first `response_tokens`, as far as it has.

    What is left is the said half's end. Nothing was said: the row begins with the response's half all the same.
    """
    room = token_limit - 2 - tokenizer.separators
    kept = response[: min(response_tokens, room)]
    before = said[max(0, len(said) + len(kept) - room) :]
    start = 1 + len(before) + tokenizer.separators
    separator = tokenizer.separator_id
    return PairRow(
        ids=(tokenizer.first_id, *before, *[separator] * tokenizer.separators, *kept, separator),
        response_start=start,
        response_end=start + len(kept),
        said_dropped=len(said) - len(before),
        response_dropped=len(response) - len(kept),
    )


def masked_copies(ids: Sequence[int], start: int, end: int, mask: int) -> list[tuple[tuple[int, ...], int, int]]:
    """For each token from `start` to `end` a copy of the row without it: (ids, its place, what stood there)."""
    return [((*ids[:place], mask, *ids[place + 1 :]), place, ids[place]) for place in range(start, end)]


KIND = "relevance"
BYTES_PER_TOKEN = 2  # more tokens than any text but rare scripts has: English has four to five bytes a token
SEGMENTS = "token_type_ids"


class RelevanceOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal["joint", "apart"]
    context_turns: int = Field(default=1, ge=1, le=16, description="Of the latest turns, that a joint row holds.")
    response_tokens: int = Field(default=64, ge=1, description="Of a joint row, that the response may take.")


def estimate_text(text: str) -> int:
    """Tokens of a text, from its bytes."""
    return len(text.encode()) // BYTES_PER_TOKEN + 1


class JointScorer(Scorer):
    """Turns as joint rows: the latest turns of the context that say something, from their end, and the response."""

    KIND: ClassVar[str] = KIND

    def __init__(self, bundle: Bundle, backend: Backend, layout: RelevanceOptions) -> None:
        self._tokenizer = TextTokenizer.of(bundle.path_of(bundle.manifest.tokenizer))
        self._token_limit = bundle.manifest.token_limit
        self._layout = layout
        self._backend = backend
        self._has_segments = any(each.name.endswith(SEGMENTS) for each in backend.inputs)

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """As much of the context as a row may hold, and the response from its beginning."""
        chars = CHARS_PER_TOKEN * self._token_limit
        latest, are_more = history_of(turn.context).latest(turns=self._layout.context_turns, chars=sys.maxsize)
        context, context_cut = keep_ends_of(latest, [chars] * len(latest))
        response, response_cut = keep_beginning(turn.response, CHARS_PER_TOKEN * self._layout.response_tokens)
        return turn.trimmed(context, response, is_cut=are_more or context_cut, is_response_cut=response_cut)

    def estimate_tokens(self, turn: TurnToScore) -> int:
        return self.estimate_row([*self.said_before(turn), turn.response])

    def inputs_of(self, turn: TurnToScore) -> Fields:
        return self.said_before(turn), turn.response

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        said = [self.said_before(turn) for turn in turns]
        ids = self._tokenizer.encode_each(
            text for turn, own in zip(turns, said, strict=True) for text in (*own, turn.response)
        )
        return [
            self.pack_row(place, [ids[text] for text in own], ids[turn.response])[0]
            for place, (turn, own) in enumerate(zip(turns, said, strict=True))
        ]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        feeds = self.feed_rows([pack.rows[0] for pack in batch], [pack.structure for pack in batch])
        return [RawScore(value=float(value)) for value in self._backend.run(feeds)["probability"]]

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Turns that answer something."""
        return bool(self.said_before(turn))

    def said_before(self, turn: TurnToScore) -> tuple[str, ...]:
        """The texts that a row holds before the response, oldest first."""
        said = [each.text for each in turn.context if each.text.strip()]
        return tuple(said[max(0, len(said) - self._layout.context_turns) :])

    def estimate_row(self, texts: Sequence[str]) -> int:
        """Tokens of the row that holds these texts."""
        return min(self._token_limit, sum(map(estimate_text, texts)) + 2 + self._tokenizer.separators)

    def lay_out(self, said: Sequence[int], response: Sequence[int]) -> PairRow:
        return lay_out_pair(
            said, response, self._tokenizer, token_limit=self._token_limit, response_tokens=self._layout.response_tokens
        )

    def pack_row(self, place: int, said: Sequence[list[int]], response: list[int]) -> tuple[TokenPack, int]:
        """The row of a turn, and where its response ends."""
        joined = [token for ids in said for token in (self._tokenizer.separator_id, *ids)][1:]
        row = self.lay_out(joined, response)
        dropped, is_whole = row.said_dropped + row.response_dropped, not row.response_dropped
        is_read = not said or len(joined) - row.said_dropped >= len(said[-1])
        pack = pack_turn(
            place, (row.ids,), dropped, context_read=is_read, response_read=is_whole, structure=row.response_start
        )
        return pack, row.response_end

    def feed_rows(self, rows: Sequence[TokenRow], starts: Sequence[int], model: str = "") -> dict[str, Array]:
        """The inputs of a graph, or of that model in it, for rows whose responses begin at these places."""
        ids, mask = pad_rows(rows, self._tokenizer.pad_id)
        feeds = {f"{model}input_ids": ids, f"{model}attention_mask": mask}
        if self._has_segments:
            feeds[f"{model}{SEGMENTS}"] = (np.arange(ids.shape[1]) >= np.array(starts)[:, None]) * mask
        return feeds


class _ApartScorer(EngagementScorer):
    KIND: ClassVar[str] = KIND


class RelevanceScorer(Scorer):
    """Probability, 0 to 1, that the response fits: makes the scorer of the form that the bundle has."""

    KIND: ClassVar[str] = KIND

    def __new__(cls, bundle: Bundle, backend: Backend) -> Scorer:  # type: ignore[misc]
        """Raises RuntimeError where the manifest's options are wrong."""
        options = bundle.read_options(RelevanceOptions)
        if options.form == "apart":
            return _ApartScorer(bundle, backend)
        return JointScorer(bundle, backend, options)
