"""The quality model over an encoder that stays as it came: every distinct row is computed once, for all runs.

For comparisons at a scale at which nothing but the heads could learn much. Exports nothing.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from turnscore_exporters.quality.finish import balance_relevant
from turnscore_exporters.quality.fit_filter import drop_fitting
from turnscore_exporters.quality.job import QualityJob
from turnscore_exporters.quality.model import BATCH_TOKENS, QualityModel, RowBuilder
from turnscore_exporters.quality.preparation import read_groups
from turnscore_exporters.quality.training import form_batches, new_model, train_model
from turnscore_exporters.training.encoders import Encoder, load_encoder, pad_rows

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


def learn_heads(job: QualityJob, files: Sequence[Path], vectors: RowVectors) -> tuple[QualityModel, Encoder]:
    """The heads after all files of groups, learned one after the other over the encoder as it came."""
    torch.manual_seed(job.seed)
    encoder = load_encoder(job.settings.encoder, job.settings.layout.row_tokens)
    model = vectors.freeze(new_model(encoder, job.settings).eval())
    for part, file in enumerate(files):
        groups = read_groups(file)
        if part:
            groups, _ = drop_fitting(groups, model, encoder)
        generator = random.Random(f"part{part} {job.seed}")  # noqa: S311
        batches = form_batches(groups, RowBuilder(encoder, job.settings.layout), job.recipe.batch_tokens, generator)
        train_model(batches, model, job.recipe, f"heads part{part}", seed=job.seed)
    balance_relevant(model, job.preparation.recipe.negatives)
    return model, encoder
