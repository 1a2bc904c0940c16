"""A bundle's self-test: known turns and its graphs' outputs for them, so that loading can compare.

Each turn is a conversation of our own text whose last text is the response; before it system and user take turns, the
user last. Refuses a graph that scores all of them alike: nothing could then show that it is wrong.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import find_scorer, load_scorer, read_turn, score_in_one_batch
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, TurnToScore
from turnscore_models.bundle import Bundle, copy_bundle, write_bundle
from turnscore_models.manifest import (
    CRITERION,
    VERSION_PATTERN,
    GraphOutput,
    GraphVariant,
    Manifest,
    SelfTest,
    SelfTestTurn,
)
from turnscore_wire import Speaker, Turn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.fp16 import examined_graph
from turnscore_exporters.json_files import write_json

Texts = tuple[str, ...]

_FILE = Path(__file__).with_name("self_test_texts.json")
_TEXTS: dict[str, list[list[str]]] = json.loads(_FILE.read_text(encoding="utf-8"))
_OF_KIND: dict[str, tuple[Texts, ...]] = {kind: tuple(map(tuple, texts)) for kind, texts in _TEXTS.items()}
# The turns that an export also scores the published way, which takes a pass for every follow-up.
FED_VERIFIED = _OF_KIND.pop("fed_verified")
# Each kind has fitting, dull, rude and broken responses, numbers, other scripts, markup, no context and long text. With
# the starter model, FED's verified turns lie between its 19th and its 85th percentile, the others between 6th and 98th.
SELF_TEST_TEXTS = {
    **_OF_KIND,
    "fed": FED_VERIFIED + _OF_KIND["fed"],
    "relevance": _OF_KIND["engagement"],
    "usr": _OF_KIND["engagement"],
    CRITERION: _OF_KIND["quality"],
}


def build_turn(texts: Sequence[str], options: object = None, speaker: Speaker = "system") -> TurnToScore:
    """A turn of that speaker, who says the last text; the others are its context."""
    last = len(texts) - 1
    other: Speaker = "user" if speaker == "system" else "system"
    context = [Turn(speaker=speaker if (last - i) % 2 == 0 else other, text=texts[i]) for i in range(last)]
    return TurnToScore(context, texts[-1], options=options)


def self_test_turns(kind: str) -> list[TurnToScore]:
    """Known turns of the speaker whom scorers of that kind score."""
    speaker = find_scorer(kind)[0].speaker
    return [build_turn(texts, speaker=speaker) for texts in SELF_TEST_TEXTS[kind]]


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


def check_empty(output: Path) -> None:
    """Raises ExporterError where the folder is in use."""
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")


def start_version(bundle: Bundle, version: str, output: Path) -> Bundle:
    """A copy of the bundle, with its old version, in the empty or missing folder `output`.

    Raises ExporterError where the folder is in use or `version` is not a version.
    """
    if not re.fullmatch(VERSION_PATTERN, version):
        raise ExporterError(f"{version!r} is not a version; give one such as 1.0.2")
    check_empty(output)
    return copy_bundle(bundle, output)


def write_self_test(bundle: Bundle, manifest: Manifest, test: SelfTest) -> Bundle:
    """The bundle under that manifest, with its graphs' outputs for these turns, each loaded as the service does."""
    place = bundle.path_of(manifest.self_test)
    write_json(place, test)
    finished = write_bundle(bundle.folder, manifest, bundle.lenders)
    write_json(place, record_outputs(finished, manifest.graphs))
    finished = write_bundle(bundle.folder, manifest, bundle.lenders)
    for variant in manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished


def _score(bundle: Bundle, variant: GraphVariant, turns: Sequence[TurnToScore]) -> list[RawScore]:
    scorer_class, _ = find_scorer(bundle.manifest.kind)
    return score_in_one_batch(scorer_class(bundle, open_examined(bundle, variant)), turns)


def open_examined(bundle: Bundle, variant: GraphVariant, threads: int = 1) -> OnnxBackend:
    """The bundle's graph, or both of them, to measure on this machine's CPU."""
    with ExitStack() as stack:
        files = map(bundle.path_of, bundle.manifest.graphs[variant].files)
        graph, *joint = (stack.enter_context(examined_graph(file, variant)) for file in files)
        return OnnxBackend(graph, threads=threads, joint=next(iter(joint), None))


def _own_details(score: RawScore) -> dict[str, float]:
    """The graph's own outputs, without percentiles: these are only places among the reference turns."""
    return {name: round(value, 6) for name, value in score.details.items() if not name.endswith(PERCENTILE_SUFFIX)}


def _choose_tolerance(bundle: Bundle, variant: GraphVariant, values: Sequence[float]) -> float:
    promised = bundle.manifest.graphs[variant].parity_tolerance
    # How far an int8 graph's outputs may differ between machines. Measured (0002): AVX2 differs from AVX-512 VNNI by
    # 0.003 at most, in a quality of FED; where the products saturate, by 0.037 to 0.046.
    most = min(promised, 0.01) if variant == "cpu-int8" else promised
    spread = max(values) - min(values)
    if not spread > 0:
        raise ExporterError(f"graph {variant} scores every self-test turn {values[0]:.6f}: nothing could show it wrong")
    # Largest share of the self-test's own spread that a tolerance may be, so that a constant graph fails.
    return float(f"{min(most, 0.05 * spread):.2g}")
