"""Percentiles of a combination of scorers: its values over real turns, for `TURNSCORE_COMBINATIONS`. Serves nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnscore_assessment.agreement.bundles import load_bundles, score_turns
from turnscore_core.scorers.scorer import RawScore
from turnscore_models import CombinationCalibration

from turnscore_exporters.bundles.parity import turns_of
from turnscore_exporters.bundles.writer import calibrate
from turnscore_exporters.data.reference_turns import ReferenceTurns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json


def parse_weights(given: Sequence[str]) -> dict[str, float]:
    """`quality.relevant=0.5` as part and weight; ExporterError quoting what is wrong."""
    weights: dict[str, float] = {}
    for each in given:
        part, _, number = each.partition("=")
        try:
            weights[part] = float(number)
        except ValueError:
            raise ExporterError(f"--weight is {each!r}, expected a part and a number such as engagement=0.5") from None
    if not weights:
        raise ExporterError("give at least one --weight")
    return weights


def write_combination_percentiles(
    weights: Mapping[str, float], bundles: Sequence[str], reference: ReferenceTurns, output: Path
) -> CombinationCalibration:
    """The percentiles of the weighted sum over the turns, with the versions and weights that they are of.

    Raises ExporterError where no bundle has a part's scorer, or the scorer does not give the part.
    """
    scorers = load_bundles(bundles)
    turns = turns_of(reference.pairs)
    values = [0.0] * len(turns)
    names = list(dict.fromkeys(part.partition(".")[0] for part in weights))
    for name in names:
        if name not in scorers:
            raise ExporterError(f"--weight names {name}, which no --bundle is; given: {', '.join(scorers)}")
        scores = score_turns(scorers[name], [scorers[name].trim(turn) for turn in turns])
        own = {part: weight for part, weight in weights.items() if part.partition(".")[0] == name}
        for place, score in enumerate(scores):
            values[place] += sum(weight * _read_part(part, score) for part, weight in own.items())
    models = {name: scorers[name].bundle.manifest.reference for name in names}
    curve = calibrate(values, reference.source)
    found = CombinationCalibration(**dict(curve), models=models, weights=dict(weights))
    write_json(output, found)
    return found


def _read_part(part: str, score: RawScore) -> float:
    name, _, detail = part.partition(".")
    if detail and detail not in score.details:
        raise ExporterError(f"--weight names {part}; the parts of {name} are {', '.join(score.details) or 'none'}")
    return score.details[detail] if detail else score.value
