"""Encoder: a text's vector of length 1, for comparing texts. It scores no turn for callers: /v1/similarity asks it.

The graph gives a vector for each row of tokens. As a scorer, which is what its self-test and its export see, it says
the cosine of a response and the text before it; a response without a context stands for both, and is encoded once.
"""

import sys
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import InvalidManifestError
from turnscore_wire import Turn

from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.scorers.engagement import feed_distinct
from turnscore_core.scorers.history import CHARS_PER_TOKEN, FEWEST_CHARS, keep_beginning
from turnscore_core.scorers.scorer import Fields, RawScore, Scorer, TokenPack, TurnToScore, pack_turn

KIND = "encoder"
_Vector = NDArray[np.float32]
# Of a vector, that it may be divided by. Specified: as sentence-transformers' normalisation has it.
_LEAST_LENGTH = 1e-12
assert sys.byteorder == "little", "vectors are kept as little-endian float32"


class TextEncoder(Scorer):
    """Vectors of texts; the end of a text beyond the token limit is not read."""

    KIND: ClassVar[str] = KIND

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises InvalidManifestError where the graph does not say how wide its vectors are."""
        self._tokenizer = TextTokenizer.of(bundle.path_of(bundle.manifest.tokenizer))
        self._token_limit = bundle.manifest.token_limit
        self._backend = backend
        widths = [output.shape[-1] for output in backend.outputs if output.name == "vector"]
        if not widths or not isinstance(widths[0], int):
            raise InvalidManifestError(
                f"bundle {bundle.manifest.reference}: its graph has no output `vector` of a width"
            )
        self.vector_width = widths[0]

    def estimate_tokens(self, turn: TurnToScore) -> int:
        return sum(min(self._token_limit, len(text) // FEWEST_CHARS + 2) for text in _texts_of(turn))

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The response and the text before it, each from its beginning."""
        chars = CHARS_PER_TOKEN * self._token_limit
        kept = [keep_beginning(text, chars) for text in _texts_of(turn)]
        context = [Turn.model_construct(speaker="user", text=text) for text, _ in kept[:-1]]
        return turn.trimmed(context, kept[-1][0], is_cut=any(is_cut for _, is_cut in kept))

    def inputs_of(self, turn: TurnToScore) -> Fields:
        return _texts_of(turn)

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """One pack a turn, with a row for the text before the response, where there is one, and for the response."""
        ids = self._tokenizer.encode_each(text for turn in turns for text in _texts_of(turn))
        return [self._pack(place, [ids[text] for text in _texts_of(turn)]) for place, turn in enumerate(turns)]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """A cosine and the response's vector for each pack. Equal rows of a batch are computed once."""
        feeds, before, response = feed_distinct(batch, self._tokenizer.pad_id)
        vectors = np.asarray(self._backend.run(feeds)["vector"], dtype=np.float32)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST_LENGTH)
        return [self._score(*each) for each in zip(vectors[before], vectors[response], strict=True)]

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        return False

    def _score(self, before: _Vector, response: _Vector) -> RawScore:
        # Numbers of a vector that a self-test sees, so that a graph with its outputs in another order is refused.
        watched = {f"number_{place % self.vector_width}": float(response[place]) for place in (0, 1, -1)}
        return RawScore(float(before @ response), watched, vector=response.tobytes())

    def _pack(self, place: int, texts: Sequence[list[int]]) -> TokenPack:
        room = self._token_limit - 2
        kept = [ids[:room] for ids in texts]
        rows = tuple((self._tokenizer.first_id, *ids, self._tokenizer.separator_id) for ids in kept)
        dropped = sum(map(len, texts)) - sum(map(len, kept))
        is_alone = len(texts) == 1
        context_read, response_read = is_alone or len(texts[0]) <= room, len(texts[-1]) <= room
        return pack_turn(place, rows, dropped, context_read=context_read, response_read=response_read)


def _texts_of(turn: TurnToScore) -> tuple[str, ...]:
    """The last text of the context that is not empty, where there is one, and the response."""
    before = next((each.text for each in reversed(turn.context) if each.text.strip()), None)
    return (turn.response,) if before is None else (before, turn.response)
