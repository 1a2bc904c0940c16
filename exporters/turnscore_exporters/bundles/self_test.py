"""A bundle's self-test: the outputs of its graphs for known turns, so that loading can compare.

Refuses a graph that scores all of them alike: nothing could then show that it is wrong.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import find_scorer, load_scorer, read_turn, score_turns
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, TurnToScore
from turnscore_models import (
    Bundle,
    GraphOutput,
    GraphVariant,
    Manifest,
    SelfTest,
    SelfTestTurn,
    copy_bundle,
    write_bundle,
)
from turnscore_models.manifest import VERSION_PATTERN

from turnscore_exporters.bundles.self_test_turns import SELF_TEST_TEXTS, self_test_turns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.half_emulation import examined_graph
from turnscore_exporters.json_files import write_json

MOST_SHARE = 0.05
"""Largest share of the self-test's own spread that a tolerance may be, so that a constant graph fails. Chosen."""
INT8_TOLERANCE = 0.01
"""How far an int8 graph's outputs may differ between machines. Measured (0002): AVX2 differs from AVX-512 VNNI by 0.003
at most, in a quality of FED; where the products saturate, by 0.037 to 0.046."""


def build_self_test(turns: Sequence[TurnToScore], values: Sequence[float | None]) -> SelfTest:
    """The turns with the checkpoint's values; None for turns that the checkpoint did not score."""
    return SelfTest(
        turns=[
            SelfTestTurn(
                context=[(each.speaker, each.text) for each in turn.context],
                response=turn.response,
                value=None if value is None else round(float(value), 6),
            )
            for turn, value in zip(turns, values, strict=True)
        ]
    )


def record_outputs(bundle: Bundle, variants: Iterable[GraphVariant]) -> SelfTest:
    """The bundle's self-test with the outputs of these graphs on this machine, and their tolerances.

    Raises ExporterError where a graph scores every turn alike.
    """
    test = bundle.self_test()
    turns = [read_turn(each) for each in test.turns]
    tolerances = dict(test.tolerances)
    outputs = [dict(each.graphs) for each in test.turns]
    for variant in variants:
        scores = _score(bundle, variant, turns)
        for kept, score in zip(outputs, scores, strict=True):
            kept[variant] = GraphOutput(value=round(score.value, 6), details=_own_details(score))
        tolerances[variant] = _choose_tolerance(bundle, variant, [score.value for score in scores])
    recorded = [turn.model_copy(update={"graphs": kept}) for turn, kept in zip(test.turns, outputs, strict=True)]
    return SelfTest(turns=recorded, tolerances=tolerances)


def renew_self_test(bundle: Bundle, version: str, output: Path) -> Bundle:
    """Writes the bundle as that version into the empty or missing folder `output`, with its kind's current self-test.

    Everything else stays, weights byte for byte; a turn keeps the checkpoint's value. Raises ExporterError where the
    folder is in use or the kind has no self-test.
    """
    kind = bundle.manifest.kind
    if kind not in SELF_TEST_TEXTS:
        raise ExporterError(f"no self-test turns are known for bundles of kind {kind!r}")
    copied = start_version(bundle, version, output)
    known = {(tuple(each.context), each.response): each.value for each in bundle.self_test().turns}
    turns = self_test_turns(kind)
    values = [known.get((tuple((t.speaker, t.text) for t in each.context), each.response)) for each in turns]
    manifest = copied.manifest.model_copy(update={"version": version})
    return write_self_test(copied, manifest, build_self_test(turns, values))


def start_version(bundle: Bundle, version: str, output: Path) -> Bundle:
    """A copy of the bundle, with its old version, in the empty or missing folder `output`.

    Raises ExporterError where the folder is in use or `version` is not a version.
    """
    if not re.fullmatch(VERSION_PATTERN, version):
        raise ExporterError(f"{version!r} is not a version; give one such as 1.0.2")
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")
    return copy_bundle(bundle, output)


def write_self_test(bundle: Bundle, manifest: Manifest, test: SelfTest) -> Bundle:
    """The bundle under that manifest, with its graphs' outputs for these turns, each loaded as the service does."""
    place = bundle.path_of(manifest.self_test)
    write_json(place, test)
    finished = write_bundle(bundle.folder, manifest)
    write_json(place, record_outputs(finished, manifest.graphs))
    finished = write_bundle(bundle.folder, manifest)
    for variant in manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished


def _score(bundle: Bundle, variant: GraphVariant, turns: Sequence[TurnToScore]) -> list[RawScore]:
    scorer_class, _ = find_scorer(bundle.manifest.kind)
    with examined_graph(bundle.path_of(bundle.manifest.graphs[variant].file), variant) as graph:
        return score_turns(scorer_class(bundle, OnnxBackend(graph, threads=1)), turns)


def _own_details(score: RawScore) -> dict[str, float]:
    """The graph's own outputs, without percentiles: these are only places among the reference turns."""
    return {name: round(value, 6) for name, value in score.details.items() if not name.endswith(PERCENTILE_SUFFIX)}


def _choose_tolerance(bundle: Bundle, variant: GraphVariant, values: Sequence[float]) -> float:
    promised = bundle.manifest.graphs[variant].parity_tolerance
    most = min(promised, INT8_TOLERANCE) if variant == "cpu-int8" else promised
    spread = max(values) - min(values)
    if not spread > 0:
        raise ExporterError(f"graph {variant} scores every self-test turn {values[0]:.6f}: nothing could show it wrong")
    return float(f"{min(most, MOST_SHARE * spread):.2g}")
