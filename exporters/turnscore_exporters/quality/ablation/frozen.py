"""The quality model over an encoder that stays as it came: every distinct row is computed once, for all runs.

For comparisons at a scale at which nothing but the heads could learn much. Exports nothing.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from turnscore_exporters.quality.finish import balance_relevant
from turnscore_exporters.quality.fit_filter import drop_fitting
from turnscore_exporters.quality.job import QualityJob
from turnscore_exporters.quality.model import QualityModel, RowBuilder
from turnscore_exporters.quality.preparation import read_groups
from turnscore_exporters.quality.row_vectors import RowVectors
from turnscore_exporters.quality.training import form_batches, new_model, train_model
from turnscore_exporters.training.encoders import Encoder, load_encoder


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
