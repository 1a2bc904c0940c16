"""The combinations that the settings name, checked against what is loaded. Refuses one that could never score.

Warns of percentiles that are of other bundles or weights: a value is right without them, and a switch goes on.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import Combination
from turnscore_core.scorers.scorer import EncodesTexts, RawScore
from turnscore_models import BundleError, CombinationCalibration

from turnscore_service.settings.service import CombinationSettings

VARIABLE = "TURNSCORE_COMBINATIONS"

_LOGGER = logging.getLogger("turnscore.models")


def load_combinations(
    described: Mapping[str, CombinationSettings], scorers: Mapping[str, LoadedScorer]
) -> dict[str, Combination]:
    """By name. Raises BundleError where a name is a scorer's, or a part or a file of percentiles is not there."""
    of_turns = {name: each for name, each in scorers.items() if not isinstance(each.scorer, EncodesTexts)}
    return {name: _load(name, each, of_turns) for name, each in described.items()}


def _load(name: str, described: CombinationSettings, scorers: Mapping[str, LoadedScorer]) -> Combination:
    if name in scorers:
        raise BundleError(f"{VARIABLE} has {name}, which is the name of a loaded scorer")
    file = described.percentiles
    known = None if file is None else _read_percentiles(name, file)
    combination = Combination(
        name=name,
        weights=described.weights,
        percentiles=None if known is None else tuple(known.percentiles),
        threshold=described.threshold,
    )
    for scorer in combination.scorers:
        if scorer not in scorers:
            raise BundleError(f"{VARIABLE}: {name} weighs {scorer}, which is not loaded; loaded: {', '.join(scorers)}")
    for part in combination.weights:
        scorer, _, detail = part.partition(".")
        if detail and detail not in (parts := _prove(scorers[scorer]).details):
            raise BundleError(
                f"{VARIABLE}: {name} weighs {part}; the parts of {scorer} are {', '.join(parts) or 'none'}"
            )
    if known is not None and (doubt := _doubt(known, combination, scorers)):
        _LOGGER.warning(
            "%s: the percentiles of %s in %s %s; turnscore export combination makes them anew",
            *(VARIABLE, name, file, doubt),
        )
    return combination


def _doubt(found: CombinationCalibration, combination: Combination, scorers: Mapping[str, LoadedScorer]) -> str:
    """Why the percentiles may not be those of what is served; empty where they are."""
    served = {name: scorers[name].bundle.manifest.reference for name in combination.scorers}
    if not found.models:
        return "do not say which versions of the bundles they are of"
    if found.models != served:
        return f"are of {', '.join(found.models.values())}, and {', '.join(served.values())} answer"
    return "" if found.weights == combination.weights else "are of other weights"


def _prove(loaded: LoadedScorer) -> RawScore:
    """What the scorer says of the turn that it is known to score."""
    return loaded.scorer.score(loaded.scorer.encode([loaded.proof]))[0]


def _read_percentiles(name: str, file: Path) -> CombinationCalibration:
    try:
        return CombinationCalibration.model_validate_json(file.read_bytes())
    except OSError as error:
        raise BundleError(f"{VARIABLE}: {name}: {file} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise BundleError(f"{VARIABLE}: {name}: {file}: {where}: {wrong['msg']}") from None
