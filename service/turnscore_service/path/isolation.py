"""Isolation: a turn that a scorer cannot tokenize fails alone."""

import dataclasses
import logging
from collections.abc import Sequence

from turnscore_service.errors import FailedScoringError, InvalidRequestError, ScoringError
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import TokenPack, TurnToScore

_LOGGER = logging.getLogger("turnscore.scorers")


def encode_isolating(
    loaded: LoadedScorer, turns: Sequence[TurnToScore]
) -> tuple[list[TokenPack], dict[int, ScoringError]]:
    """The turns' packs; when tokenizing them together fails, one by one, so that a broken turn fails alone."""
    try:
        return loaded.scorer.encode(turns), {}
    except InvalidRequestError as error:
        if len(turns) == 1:
            return [], {0: InvalidRequestError(error.message, field=f"options.{loaded.name}.{error.field}")}
    except Exception as error:
        if len(turns) == 1:
            _LOGGER.error("tokenizing failed: %s", type(error).__name__, exc_info=error)
            return [], {0: FailedScoringError(f"{loaded.name} could not tokenize the text")}
    packs: list[TokenPack] = []
    failed: dict[int, ScoringError] = {}
    for place, turn in enumerate(turns):
        own, broken = encode_isolating(loaded, [turn])
        packs += [dataclasses.replace(pack, answers=(place,) * len(pack.answers)) for pack in own]
        if broken:
            failed[place] = broken[0]
    return packs, failed
