"""Rebuilds parts of an existing bundle, weights byte for byte: self-test, percentiles, a combination's curve."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.data.dialogues import STATED, LabelledTurn, Population, draw_turns, read_population
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, find_scorer, load_scorer
from turnscore_core.scorers.fed.questions import FedBundleOptions
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.scorer import RawScore
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import Bundle, read_bundle, write_bundle
from turnscore_models.manifest import CombinationCalibration
from turnscore_models.store import resolve

from turnscore_exporters.bundles import self_test
from turnscore_exporters.bundles.writer import calibrate, turns_of
from turnscore_exporters.data.pairs import ReferenceTurns, choose_reference_turns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.fed.bundle import mean_values, serve_both_losses, write_reference
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.options import CombinationOptions, PercentilesOptions, SelfTestOptions


def rebuild_self_test(options: SelfTestOptions) -> list[str]:
    """Writes the folder's bundle as that version into `output`, with its kind's current self-test.

    Everything else stays, weights byte for byte; a turn keeps the checkpoint's value. Raises ExporterError where the
    folder is in use or the kind has no self-test.
    """
    bundle = read_bundle(options.bundle)
    kind = bundle.manifest.kind
    if kind not in self_test.SELF_TEST_TEXTS:
        raise ExporterError(f"no self-test turns are known for bundles of kind {kind!r}")
    copied = self_test.start_version(bundle, options.version, options.output)
    known = {(tuple(each.context), each.response): each.value for each in bundle.self_test().turns}
    turns = self_test.self_test_turns(kind)
    values = [known.get((tuple((t.speaker, t.text) for t in each.context), each.response)) for each in turns]
    manifest = copied.manifest.model_copy(update={"version": options.version})
    made = self_test.write_self_test(copied, manifest, self_test.build_self_test(turns, values))
    return [f"{made.manifest.reference} written to {options.output}; tolerances: {made.self_test().tolerances}"]


def rebuild_percentiles(options: PercentilesOptions) -> list[str]:
    """Rebuilds the percentiles of a stored bundle."""
    population = read_population(options.data)
    made = renew_percentiles(resolve(options.bundle), population, options.version, options.output, options.turns)
    return [f"{made.manifest.reference} written to {options.output}: {made.calibration().turns} turns"]


def write_combination(options: CombinationOptions) -> list[str]:
    """Writes the combination's percentiles over the reference turns."""
    reference = choose_reference_turns(options.data, options.dialogues or [], options.turns)
    weights = parse_weights(options.weight)
    found = write_combination_percentiles(weights, options.bundle, reference, options.output)
    values = f"from {found.percentiles[0]} to {found.percentiles[-1]}"
    return [f"wrote {options.output}: values of {found.turns} turns {values}"]


LEAST_TURNS = 100  # Fewer turns leave some percentiles without a turn of their own. Specified.
# The option in which a bundle names its file of the details' curves: `{"curves": {detail: curve}}`.
HEADS_OPTION = "heads"


def renew_percentiles(
    bundle: Bundle, population: Population, version: str, output: Path, limit: int | None = None
) -> Bundle:
    """Writes the bundle as that version into the empty or missing folder `output`, with new curves.

    The curves are of at most `limit` turns of the population, drawn at random. Raises ExporterError where the folder is
    in use, `version` is not a version, or there are too few turns.
    """
    speaker = find_scorer(bundle.manifest.kind)[0].speaker
    known = population.turns_of(speaker)
    turns = draw_turns(known, limit, seed=0)
    if len(turns) < LEAST_TURNS:
        raise ExporterError(f"{len(turns)} turns; percentiles need at least {LEAST_TURNS}")
    copied = self_test.start_version(bundle, version, output)
    loaded = load_scorer(copied, choose_variant(copied), threads=usable_cpus())
    sample = "" if len(turns) == len(known) else f"; a sample of {len(turns)} of {len(known)}"
    stated = STATED if speaker == "system" else f"{STATED}: the user turns before them"
    source = f"{stated}{sample}; values of the graph {loaded.variant}"
    _WRITERS.get(copied.manifest.kind, _write_plain_curves)(loaded, turns, source)
    manifest = copied.manifest.model_copy(update={"version": version})
    finished = write_bundle(output, manifest)
    for variant in manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished


def _write_plain_curves(loaded: LoadedScorer, turns: Sequence[LabelledTurn], source: str) -> None:
    """The curve of the value, and of each detail that has one already."""
    raw = score_turns(loaded, [turn.to_score() for turn in turns])
    manifest = loaded.bundle.manifest
    write_json(loaded.bundle.path_of(manifest.calibration), calibrate([each.value for each in raw], source))
    if HEADS_OPTION in manifest.options:
        file = loaded.bundle.path_of(str(manifest.options[HEADS_OPTION]))
        curves = {name: calibrate([each.details[name] for each in raw], source) for name in read_json(file)["curves"]}
        write_json(file, {"curves": {name: curve.model_dump(mode="json") for name, curve in curves.items()}})


def _write_fed_curves(loaded: LoadedScorer, turns: Sequence[LabelledTurn], source: str) -> None:
    """FED's values of every quality, by both losses, and the curve of its default question."""
    if not isinstance(loaded.scorer, FedScorer):
        raise ExporterError(f"the installed scorer of kind {loaded.name} is not turnscore's")
    manifest = loaded.bundle.manifest
    options = FedBundleOptions.model_validate(manifest.options)
    conversations = [(*(text for _, text in turn.context), turn.response) for turn in turns]
    values = serve_both_losses(loaded.scorer, conversations, options)
    write_reference(loaded.bundle.path_of(options.reference), values)
    defaults = mean_values(values[options.loss], options).tolist()
    write_json(loaded.bundle.path_of(manifest.calibration), calibrate(defaults, source))


_WRITERS: Mapping[str, Callable[[LoadedScorer, Sequence[LabelledTurn], str], None]] = {"fed": _write_fed_curves}


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
        scores = score_turns(scorers[name], turns)
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
