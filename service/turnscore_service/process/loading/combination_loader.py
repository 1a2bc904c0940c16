"""The combinations that the settings name, checked against what is loaded. Refuses one that could never score."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from turnscore_models import BundleError, Calibration

from turnscore_service.path.combinations import Combination
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import EncodesTexts, RawScore
from turnscore_service.settings.service import CombinationSettings

VARIABLE = "TURNSCORE_COMBINATIONS"


def load_combinations(
    described: Mapping[str, CombinationSettings], scorers: Mapping[str, LoadedScorer]
) -> dict[str, Combination]:
    """By name. Raises BundleError where a name is a scorer's, or a part or a file of percentiles is not there."""
    of_turns = {name: each for name, each in scorers.items() if not isinstance(each.scorer, EncodesTexts)}
    return {name: _load(name, each, of_turns) for name, each in described.items()}


def _load(name: str, described: CombinationSettings, scorers: Mapping[str, LoadedScorer]) -> Combination:
    if name in scorers:
        raise BundleError(f"{VARIABLE} has {name}, which is the name of a loaded scorer")
    combination = Combination(
        name=name,
        weights=described.weights,
        percentiles=None if described.percentiles is None else _read_percentiles(name, described.percentiles),
        threshold=described.threshold,
    )
    for scorer in combination.scorers:
        if scorer not in scorers:
            raise BundleError(f"{VARIABLE}: {name} weighs {scorer}, which is not loaded; loaded: {', '.join(scorers)}")
    for part in combination.weights:
        scorer, _, detail = part.partition(".")
        if detail and detail not in (known := _prove(scorers[scorer]).details):
            raise BundleError(
                f"{VARIABLE}: {name} weighs {part}; the parts of {scorer} are {', '.join(known) or 'none'}"
            )
    return combination


def _prove(loaded: LoadedScorer) -> RawScore:
    """What the scorer says of the turn that it is known to score."""
    return loaded.scorer.score(loaded.scorer.encode([loaded.proof]))[0]


def _read_percentiles(name: str, file: Path) -> tuple[float, ...]:
    try:
        return tuple(Calibration.model_validate_json(file.read_bytes()).percentiles)
    except OSError as error:
        raise BundleError(f"{VARIABLE}: {name}: {file} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise BundleError(f"{VARIABLE}: {name}: {file}: {where}: {wrong['msg']}") from None
