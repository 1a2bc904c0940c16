"""Engagement: is this reply engaging for the person who wrote the query? Predictive Engagement, Ghazarian et al. 2020.

Query and reply are encoded separately; the graph combines their vectors, by the average or as the bundle was trained,
and applies the head. The query is what the user said last, their consecutive messages merged. Without any user turn
the reply's vector stands for both.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from turnscore_models.bundle import Bundle
from turnscore_wire import Turn

from turnscore_core.inference.onnx_backend import Array, Backend, pad_rows
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.scorers.history import CHARS_PER_TOKEN, FEWEST_CHARS, history_of, keep_beginning, keep_end
from turnscore_core.scorers.scorer import Fields, RawScore, Scorer, TokenPack, TokenRow, TurnToScore, pack_turn


def feed_distinct(batch: Sequence[TokenPack], pad_id: int) -> tuple[dict[str, Array], Array, Array]:
    """The inputs of a graph for a batch's rows, equal ones once; and of each pack the places of its first and last."""
    places: dict[TokenRow, int] = {}
    for pack in batch:
        for row in pack.rows:
            places.setdefault(row, len(places))
    input_ids, attention_mask = pad_rows(list(places), pad_id)
    first, last = (np.array([places[pack.rows[end]] for pack in batch], dtype=np.int64) for end in (0, -1))
    return {"input_ids": input_ids, "attention_mask": attention_mask}, first, last


class EngagementScorer(Scorer):
    """Probability, 0 to 1, that the reply is engaging."""

    KIND: ClassVar[str] = "engagement"

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        self._tokenizer = TextTokenizer.of(bundle.path_of(bundle.manifest.tokenizer))
        self._token_limit = bundle.manifest.token_limit
        self._backend = backend

    def max_turn_tokens(self, token_limit: int) -> int:
        """Query and reply have a row each."""
        return 2 * token_limit

    def estimate_tokens(self, turn: TurnToScore) -> int:
        query = sum(map(len, last_user_run(turn.context)))
        most, reply = self._token_limit, len(turn.response)
        return min(most, query // FEWEST_CHARS + 2) + min(most, reply // FEWEST_CHARS + 2)

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The user's last run of messages as one, from its end, and the response from its beginning."""
        chars = CHARS_PER_TOKEN * self._token_limit
        context, response = turn.context, turn.response
        is_short = len(response) <= chars
        if is_short and len(context) == 1 and _is_read_whole(context[0], chars):
            return turn
        history = history_of(context)
        begin, end = history.last_user_run
        if is_short and end - begin == 1 and _is_read_whole(said := history[begin], chars):
            return turn.trimmed([said], response, is_cut=False)
        run, query_cut = history.latest(turns=self._token_limit, chars=chars, begin=begin, end=end)
        query, is_longer = keep_end(" ".join(last_user_run(run)), chars)
        response, reply_cut = keep_beginning(response, chars)
        context = [Turn.model_construct(speaker="user", text=query)] if query else []
        return turn.trimmed(context, response, is_cut=query_cut or is_longer, is_response_cut=reply_cut)

    def inputs_of(self, turn: TurnToScore) -> Fields:
        return " ".join(last_user_run(turn.context)), turn.response

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """One pack of two rows per turn, query and reply; only the reply's if there is no query.

        A query beyond the token limit loses its beginning, a reply its end. Each distinct text is tokenized once.
        """
        pairs = [(" ".join(last_user_run(turn.context)), turn.response) for turn in turns]
        ids = self._tokenizer.encode_each(text for pair in pairs for text in pair)
        return [self._pack(place, ids[query], ids[reply]) for place, (query, reply) in enumerate(pairs)]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """One probability a turn. Equal rows of a batch, such as one query with many replies, are computed once."""
        feeds, query, reply = feed_distinct(batch, self._tokenizer.pad_id)
        found = self._backend.run({**feeds, "query_row": query, "reply_row": reply})
        return [RawScore(value=float(value)) for value in found["probability"]]

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """A dialogue's score is taken over its pairs: turns that answer something the user said."""
        return bool(last_user_run(turn.context))

    def _pack(self, place: int, query: list[int], reply: list[int]) -> TokenPack:
        room = self._token_limit - 2
        kept = [reply[:room]] if not query else [query[-room:], reply[:room]]
        rows = tuple((self._tokenizer.first_id, *ids, self._tokenizer.separator_id) for ids in kept)
        dropped = len(query) + len(reply) - sum(map(len, kept))
        return pack_turn(place, rows, dropped, context_read=len(query) <= room, response_read=len(reply) <= room)


def last_user_run(context: Sequence[Turn]) -> tuple[str, ...]:
    """What the user said last: the texts of their last run of messages, oldest first, empty ones left out."""
    if len(context) == 1:
        [only] = context
        return (text,) if only.speaker == "user" and (text := only.text.strip()) else ()
    said: list[str] = []
    has_begun = False
    for turn in reversed(context):
        if turn.speaker == "user":
            has_begun = True
            said.append(turn.text.strip())
        elif has_begun:
            break
    return tuple(text for text in reversed(said) if text)


def _is_read_whole(turn: Turn, chars: int) -> bool:
    """Whether it is the user's, of at most so many characters, and no white space is around it: most are."""
    return turn.speaker == "user" and len(turn.text) <= chars and turn.text == turn.text.strip() != ""
