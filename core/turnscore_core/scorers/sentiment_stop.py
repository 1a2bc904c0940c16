"""Sentiment/stop: how will the user react to this response? Ghazarian et al. 2022.

One BERT reads context and response as one row and predicts two things: the sentiment of the next user utterance, and
whether there will be one. The value is their sum, the paper's quality of the turn.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt
from turnscore_models.bundle import Bundle
from turnscore_wire import Turn

from turnscore_core.inference.onnx_backend import Backend, pad_rows
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.scorers.history import CHARS_PER_TOKEN, FEWEST_CHARS, History, history_of, keep_beginning, keep_end
from turnscore_core.scorers.scorer import Fields, RawScore, Scorer, TokenPack, TurnToScore, context_fields, pack_turn

TurnMarks = Literal["separator", "speaker"]


class WindowLayout(BaseModel):
    """How a turn and its context become a row: `[CLS] context [SEP] response [SEP]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_turns: NonNegativeInt  # how many of the latest context turns the model reads
    # `separator`: [SEP] between context turns. `speaker`: [unused0] before a user's, [unused1] before a system's.
    turn_marks: TurnMarks
    response_segment: Literal[0, 1]  # segment id of the response and its [SEP]; the context's is 0


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
    layout: WindowLayout,
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


ROW_MARKS = 2  # [CLS] and the [SEP] before the response
_GLANCE = 8  # characters that are looked at before the tokenizer is asked whether it makes any token of a text


class SentimentStopScorer(Scorer):
    """Predicted sentiment of the next user utterance, -1 to 1, plus the probability, 0 to 1, that there is one."""

    KIND: ClassVar[str] = "sentiment_stop"

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        self._tokenizer = TextTokenizer.of(bundle.path_of(bundle.manifest.tokenizer))
        self._layout = WindowLayout.model_validate(bundle.manifest.options)
        self._special = SpecialTokens(
            first=self._tokenizer.first_id,
            separator=self._tokenizer.separator_id,
            user=self._tokenizer.special("[unused0]"),
            system=self._tokenizer.special("[unused1]"),
        )
        self._token_limit = bundle.manifest.token_limit
        self._backend = backend

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The latest turns of the context from their end, as many as a row holds; the response from its beginning."""
        chars = CHARS_PER_TOKEN * self._token_limit
        latest, are_more = history_of(turn.context).latest_of(self._has_tokens, self._layout.context_turns)
        context, context_cut = History(latest).latest(turns=len(latest), chars=chars)
        response, response_cut = keep_beginning(turn.response, chars)
        return turn.trimmed(context, response, is_cut=are_more or context_cut, is_response_cut=response_cut)

    def estimate_tokens(self, turn: TurnToScore) -> int:
        chars = len(turn.response) + sum(len(each.text) for each in turn.context)
        return min(self._token_limit, chars // FEWEST_CHARS + 3)

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """Context and response; who spoke where the row marks it."""
        speakers, texts = context_fields(turn.context)
        return speakers if self._layout.turn_marks == "speaker" else (), texts, turn.response

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """One row a turn: the latest turns of the context, then the response."""
        ids = self._tokenizer.encode_each(
            text for turn in turns for text in (turn.response, *(each.text for each in turn.context))
        )
        return [self._pack(place, turn, ids) for place, turn in enumerate(turns)]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """Sentiment and probability of going on, and their sum as the value, one for each row."""
        input_ids, attention_mask = pad_rows([pack.rows[0] for pack in batch], self._tokenizer.pad_id)
        starts = np.array([[pack.structure] for pack in batch], dtype=np.int64)
        segments = (np.arange(input_ids.shape[1]) >= starts) * attention_mask * self._layout.response_segment
        outputs = self._backend.run(
            {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": segments}
        )
        return [
            RawScore(float(sentiment) + float(goes_on), {"sentiment": float(sentiment), "goes_on": float(goes_on)})
            for sentiment, goes_on in zip(outputs["sentiment"], outputs["goes_on"], strict=True)
        ]

    def _has_tokens(self, turn: Turn) -> bool:
        """Whether the turn stands in a row: not if it is empty, white space or invisible characters."""
        text, _ = keep_end(turn.text.strip(), CHARS_PER_TOKEN * self._token_limit)
        if any(map(_is_seen, text[-_GLANCE:])):
            return True
        # Which characters there are decides, not how often: a long row of one is as quick as a short one.
        return bool(text) and bool(self._tokenizer.encode(["".join(set(text))])[0])

    def _pack(self, place: int, turn: TurnToScore, ids: Mapping[str, list[int]]) -> TokenPack:
        context = [(each.speaker, ids[each.text]) for each in turn.context]
        row = lay_out_row(context, ids[turn.response], self._layout, self._special, self._token_limit)
        said, response = [ids for _, ids in context if ids], ids[turn.response]
        read = row.response_start - ROW_MARKS - (self._layout.turn_marks == "speaker")
        is_read = not said or not self._layout.context_turns or read >= len(said[-1])
        is_whole = len(row.ids) - row.response_start - 1 >= len(response)
        return pack_turn(
            place, (row.ids,), row.dropped, context_read=is_read, response_read=is_whole, structure=row.response_start
        )


def _is_seen(character: str) -> bool:
    """Whether it is a letter, digit, mark or symbol of any script: a tokenizer makes a token of each, but of U+FFFD."""
    return unicodedata.category(character)[0] in "LNPS" and character != "\ufffd"
