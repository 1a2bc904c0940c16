"""Drops made-up responses that fit after all, by what a model trained so far says of them (PONE's filter)."""

from collections.abc import Sequence

from turnscore_exporters.quality.examples import Group
from turnscore_exporters.quality.model import RELEVANT, QualityModel, RowBuilder, score_pairs
from turnscore_exporters.quality.negatives import NegativeKind
from turnscore_exporters.training.encoders import Encoder

DOUBTFUL = frozenset(
    {NegativeKind.NEAR_CONTEXT, NegativeKind.NEAR_RESPONSE, NegativeKind.SHARED_WORD, NegativeKind.SAME_DIALOGUE}
)
"""Kinds that are real responses to something like the context: some of them fit."""
FITS_ABOVE = 0.8
"""Chosen: of 50 near misses rated above it, read by us, most could have been said."""
GROUPS_AT_ONCE = 2000


def drop_fitting(groups: Sequence[Group], model: QualityModel, encoder: Encoder) -> tuple[list[Group], int]:
    """The groups without the doubtful examples that the model takes for relevant, and how many were dropped."""
    kept: list[Group] = []
    dropped = 0
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        chunk = groups[start : start + GROUPS_AT_ONCE]
        builder = RowBuilder(encoder, model.settings.layout)
        asked = [each for group in chunk for each in group if each.kind in DOUBTFUL]
        rated = score_pairs(model, [builder.first_pair(each.context, each.response) for each in asked])
        fitting = {
            id(each) for each, fits in zip(asked, (rated[:, RELEVANT] > FITS_ABOVE).tolist(), strict=True) if fits
        }
        kept += [[each for each in group if id(each) not in fitting] for group in chunk]
        dropped += len(fitting)
    return kept, dropped
