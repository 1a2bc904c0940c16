"""Rows of a model whose weights do not change: each distinct one is computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from turnscore_exporters.quality.model import BATCH_TOKENS, QualityModel
from turnscore_exporters.training.encoders import pad_rows

_Row = tuple[int, ...]


@dataclass(frozen=True)
class RowVectors:
    """The vectors of rows that were asked for, by their token ids; of one encoder whose weights do not change."""

    known: dict[_Row, Tensor] = field(default_factory=dict)

    def freeze(self, model: QualityModel) -> QualityModel:
        """The same model, whose rows are read here."""
        compute = model.read_rows

        def read_rows(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            lengths = attention_mask.sum(1).tolist()
            rows = [tuple(ids[:length]) for ids, length in zip(input_ids.tolist(), lengths, strict=True)]
            missing = sorted({row for row in rows if row not in self.known}, key=len)
            model.encoder.eval()  # a row is the same whenever it is asked for: no dropout in it
            for chunk in _chunks(missing):
                with torch.no_grad():
                    self.known.update(zip(chunk, compute(*pad_rows(chunk)), strict=True))
            return torch.stack([self.known[row] for row in rows])

        model.read_rows = read_rows  # type: ignore[method-assign]
        return model


def _chunks(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Rows, shortest first, in batches within the budget."""
    chunks: list[list[_Row]] = []
    for row in rows:
        if not chunks or (len(chunks[-1]) + 1) * len(row) > BATCH_TOKENS:
            chunks.append([])
        chunks[-1].append(row)
    return chunks
