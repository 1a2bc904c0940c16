"""Sentiment/stop: how will the user react to this response? Ghazarian et al. 2022.

One BERT reads context and response as one row and predicts two things: the sentiment of the next user utterance, and
whether there will be one. The value is their sum, the paper's quality of the turn.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import JsonValue
from turnscore_models import Bundle
from turnscore_wire import TokenCount

from turnscore_service.errors import InvalidRequestError
from turnscore_service.inference.dialogue_rows import RowLayout, SpecialTokens, lay_out_row
from turnscore_service.inference.onnx_backend import Backend
from turnscore_service.inference.packing import pad_rows
from turnscore_service.inference.text_tokenizer import TextTokenizer
from turnscore_service.scorers.fields import Fields, context_fields
from turnscore_service.scorers.scorer import RawScore, TokenPack, TurnToScore

_CHARS_A_TOKEN = 2


class SentimentStopScorer:
    """Predicted sentiment of the next user utterance, -1 to 1, plus the probability, 0 to 1, that there is one."""

    KIND: ClassVar[str] = "sentiment_stop"

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        self._tokenizer = TextTokenizer(bundle.path_of(bundle.manifest.tokenizer))
        self._layout = RowLayout.model_validate(bundle.manifest.options)
        self._special = SpecialTokens(
            first=self._tokenizer.first_id,
            separator=self._tokenizer.separator_id,
            user=self._tokenizer.special("[unused0]"),
            system=self._tokenizer.special("[unused1]"),
        )
        self._token_limit = bundle.manifest.token_limit
        self._backend = backend

    def read_options(self, options: Mapping[str, JsonValue]) -> None:
        """Sentiment/stop takes no options: raises InvalidRequestError for the first one."""
        for name in options:
            raise InvalidRequestError("sentiment_stop has no such option", field=name)

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens of the row, from the characters of what it may hold."""
        latest = turn.context[max(0, len(turn.context) - self._layout.context_turns) :]
        chars = len(turn.response) + sum(len(each.text) for each in latest)
        return min(self._token_limit, chars // _CHARS_A_TOKEN + 3)

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """The whole context, since dropped tokens are counted, and the response; who spoke where the row marks it."""
        speakers, texts = context_fields(turn.context)
        return speakers if self._layout.turn_marks == "speaker" else (), texts, turn.response

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """One row a turn: the latest turns of the context, then the response. Dropped tokens are of older turns."""
        texts = dict.fromkeys(text for turn in turns for text in (turn.response, *(each.text for each in turn.context)))
        ids = dict(zip(texts, self._tokenizer.encode(list(texts)), strict=True))
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

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """The paper's dialogue score is the mean over all system turns."""
        return True

    def _pack(self, place: int, turn: TurnToScore, ids: Mapping[str, list[int]]) -> TokenPack:
        context = [(each.speaker, ids[each.text]) for each in turn.context]
        row = lay_out_row(context, ids[turn.response], self._layout, self._special, self._token_limit)
        count = TokenCount(used=len(row.ids), dropped=row.dropped)
        return TokenPack(rows=(row.ids,), answers=(place,), tokens=(count,), structure=row.response_start)
