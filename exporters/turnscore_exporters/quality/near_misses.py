"""Near misses: real responses to something else that look as if they belonged. Found by a bi-encoder and by rare words.

A response from the ranks 10 to 60 of the most similar ones is on the topic and yet answers another turn; the very first
ranks often fit. What resembles the real response too much is left out, as it may fit as well.
"""

import random
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from turnscore_exporters.quality.spoken_turns import SpokenTurn
from turnscore_exporters.training.encoders import Encoder, pad_rows

FIRST_RANK, LAST_RANK = 10, 60
TOO_SIMILAR = 0.6
"""Cosine with the real response from which a near miss may well fit. Chosen by reading 200 of them."""
KEPT = 3
QUERIES_AT_ONCE, TEXTS_AT_ONCE = 512, 64
RAREST, MOST_FREQUENT = 3, 400
"""A word that leads to a response stands in so many responses. Chosen: fewer is a typing error, more no topic."""
TEXT_TOKENS = 48
_WORD = re.compile(r"[a-z]{4,}")

Vectors = NDArray[np.float32]


def embed_texts(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Unit vectors [texts, width]: the mean of each text's first TEXT_TOKENS token vectors."""
    ids = [row[:TEXT_TOKENS] for row in encoder.tokenize(texts)]
    order = sorted(range(len(texts)), key=lambda index: len(ids[index]))
    vectors = np.zeros((len(texts), encoder.width), dtype=np.float32)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for start in range(0, len(order), TEXTS_AT_ONCE):
            chosen = order[start : start + TEXTS_AT_ONCE]
            rows, mask = pad_rows([ids[index] for index in chosen])
            tokens = encoder.model(input_ids=rows, attention_mask=mask).last_hidden_state.float()
            pooled = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors[chosen] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
    return vectors


class NearMisses:
    """For each turn some responses of other dialogues that are near its context, its response, or share a rare word."""

    def __init__(self, turns: Sequence[SpokenTurn], encoder: Encoder, seed: int = 0) -> None:
        self._turns = turns
        self._seed = seed
        self._by_word = _index_words(turns)
        responses = embed_texts(encoder, [turn.response for turn in turns])
        contexts = embed_texts(encoder, [turn.context[-1][1] for turn in turns])
        self._near_context = _find_near(contexts, responses, turns, seed)
        self._near_response = _find_near(responses, responses, turns, seed + 1)

    def near_context(self, index: int) -> list[str]:
        """Responses that resemble what the turn answers."""
        return [self._turns[each].response for each in self._near_context[index]]

    def near_response(self, index: int) -> list[str]:
        """Responses that resemble the turn's own, as far as they are not too much like it."""
        return [self._turns[each].response for each in self._near_response[index]]

    def shared_word(self, index: int) -> str | None:
        """A response that shares one of the context's rare words; None where no word leads to one."""
        turn = self._turns[index]
        generator = random.Random(self._seed * 1_000_003 + index)  # noqa: S311
        words = {word for _, text in turn.context[-2:] for word in _WORD.findall(text.lower())}
        known = sorted(word for word in words if RAREST <= len(self._by_word.get(word, ())) <= MOST_FREQUENT)
        known.sort(key=lambda word: len(self._by_word[word]))
        own = set(_WORD.findall(turn.response.lower()))
        for word in known[:3]:
            for place in generator.sample(self._by_word[word], min(8, len(self._by_word[word]))):
                other = self._turns[place]
                theirs = set(_WORD.findall(other.response.lower()))
                if other.dialogue != turn.dialogue and len(own & theirs) <= len(own | theirs) / 3:
                    return other.response
        return None


def _index_words(turns: Sequence[SpokenTurn]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for index, turn in enumerate(turns):
        for word in sorted(set(_WORD.findall(turn.response.lower()))):
            places[word].append(index)
    return places


def _find_near(queries: Vectors, responses: Vectors, turns: Sequence[SpokenTurn], seed: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    found: list[list[int]] = []
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        block = queries[start : start + QUERIES_AT_ONCE] @ responses.T
        last = min(LAST_RANK, block.shape[1] - 1)
        nearest = np.argpartition(-block, last, axis=1)[:, : last + 1]
        for row, candidates in enumerate(nearest):
            index = start + row
            ranked = candidates[np.argsort(-block[row, candidates])][FIRST_RANK:]
            likeness = responses[ranked] @ responses[index]
            kept = [
                int(each)
                for each, like in zip(ranked, likeness, strict=True)
                if like < TOO_SIMILAR and turns[each].dialogue != turns[index].dialogue
            ]
            generator.shuffle(kept)
            found.append(kept[:KEPT])
    return found
