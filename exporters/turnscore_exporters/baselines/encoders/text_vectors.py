"""Vectors of texts by a frozen BERT: the mean of a text's token vectors, each text computed once."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnscore_exporters.training.encoders import Encoder, pad_rows

TEXTS_AT_ONCE = 64


class FrozenVectors:
    """Vectors of texts by a frozen BERT; an empty text is a vector of zeros."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Tensor] = {"": torch.zeros(encoder.width)}

    @property
    def width(self) -> int:
        return self._encoder.width

    def add(self, texts: Iterable[str]) -> None:
        """Computes the texts without a vector, sorted by length."""
        fresh = sorted({text for text in texts if text not in self._known}, key=lambda text: (len(text), text))
        with torch.inference_mode():
            for start in range(0, len(fresh), TEXTS_AT_ONCE):
                chosen = fresh[start : start + TEXTS_AT_ONCE]
                ids, mask = pad_rows(self._encoder.tokenize(chosen))
                tokens = self._encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                pooled = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                self._known.update(zip(chosen, pooled, strict=True))

    def of(self, texts: Sequence[str]) -> Tensor:
        """[texts, width]."""
        self.add(texts)
        return torch.stack([self._known[text] for text in texts]).clone()

    def unit(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors scaled to length 1, [texts, width]."""
        return np.asarray(torch.nn.functional.normalize(self.of(texts), dim=-1).numpy(), dtype=np.float32)
