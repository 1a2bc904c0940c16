"""Writes a bundle of any scorer: files, calibration, manifest; and holds graphs to what their checkpoint gives.

Parity is measured through the code that serves.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
from pydantic import JsonValue
from turnscore_assessment.figures import compute_spearman
from turnscore_core.batches import form_batches
from turnscore_core.inference.onnx_backend import OnnxBackend, Tensor
from turnscore_core.scorers.scorer import Scorer, TurnToScore
from turnscore_models.bundle import Bundle, write_bundle
from turnscore_models.manifest import Calibration, GraphSpec, GraphVariant, JointSpec, Manifest, TensorSpec
from turnscore_wire import Turn

from turnscore_exporters.bundles.self_test import build_self_test, check_empty, self_test_turns, write_self_test
from turnscore_exporters.errors import ExporterError, ParityError
from turnscore_exporters.graphs.fp16 import DATA_SUFFIX
from turnscore_exporters.json_files import write_json

GRAPH_FILES: dict[GraphVariant, str] = {
    "fp32": "graphs/fp32.onnx",
    "cpu-int8": "graphs/cpu-int8.onnx",
    "cuda-fp16": "graphs/cuda-fp16.onnx",
}
# Of graphs that are cut in two, the second ones.
JOINT_FILES: dict[GraphVariant, str] = {
    variant: file.replace(".onnx", "-joint.onnx") for variant, file in GRAPH_FILES.items()
}
DEFAULT_GRAPHS: tuple[GraphVariant, ...] = ("fp32", "cpu-int8")
TOKENIZER_FILE, CALIBRATION_FILE, SELF_TEST_FILE = "tokenizer.json", "calibration.json", "self_test.json"
# fp32 differs by rounding alone.
FP32_TOLERANCE = 1e-4


# A graph's precision in words, and the largest allowed difference of a value.
GraphPromise = tuple[str, float]
MIN_PARITY_TURNS = 200
# Chosen from what was measured, see docs/deploy.md.
FP16_TOLERANCE = 0.02
PRECISIONS: dict[GraphVariant, str] = {
    "fp32": "fp32",
    "cpu-int8": "int8 weights and activations, a scale per token",
    "cuda-fp16": "fp16; softmax, sums of layer norms, pooling and heads fp32",
}


@dataclass(frozen=True)
class GraphChoice:
    """The graphs that the bundle keeps, and the largest allowed difference of a value of the reduced ones."""

    kept: Sequence[GraphVariant]
    int8_tolerance: float
    fp16_tolerance: float = FP16_TOLERANCE

    def promises(self) -> dict[GraphVariant, GraphPromise]:
        """The promise of each graph that is written; fp32 is always among them, since the others are made from it."""
        tolerances: dict[GraphVariant, float] = {
            "fp32": FP32_TOLERANCE,
            "cpu-int8": self.int8_tolerance,
            "cuda-fp16": self.fp16_tolerance,
        }
        written: list[GraphVariant] = ["fp32", *(each for each in self.kept if each != "fp32")]
        return {variant: (PRECISIONS[variant], tolerances[variant]) for variant in written}


def choose_graphs(
    names: Sequence[str] | None, int8_tolerance: float, fp16_tolerance: float = FP16_TOLERANCE
) -> GraphChoice:
    """The graphs that `--graph` names, in order; the default ones without any. ExporterError for an unknown name."""
    known: dict[str, GraphVariant] = {each: each for each in get_args(GraphVariant)}
    for name in names or ():
        if name not in known:
            raise ExporterError(f"--graph is {name!r}, expected one of {', '.join(known)}")
    kept = tuple(dict.fromkeys(known[name] for name in names or DEFAULT_GRAPHS))
    return GraphChoice(kept, int8_tolerance, fp16_tolerance)


@contextmanager
def fresh_folder(output: Path, reference_turns: int, least_turns: int) -> Iterator[None]:
    """Fills the folder inside the block; removes what was written if anything stops it.

    Raises ExporterError at once where the folder is not empty or the reference turns are too few for parity.
    """
    check_empty(output)
    if reference_turns < least_turns:
        raise ExporterError(f"{reference_turns} reference turns; parity needs at least {least_turns}")
    try:
        yield
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise


def start_bundle(
    output: Path, kind: str, version: str, promises: Mapping[GraphVariant, GraphPromise], **rest: Any
) -> Bundle:
    """The bundle of the folder's files, before parity is measured; `rest` are the manifest's other fields."""
    graphs = {variant: _describe_graph(output, variant, promise) for variant, promise in promises.items()}
    files = {"tokenizer": TOKENIZER_FILE, "calibration": CALIBRATION_FILE, "self_test": SELF_TEST_FILE}
    return write_bundle(output, Manifest(name=kind, kind=kind, version=version, graphs=graphs, **files, **rest))


def finish_bundle(
    bundle: Bundle,
    measured: Mapping[GraphVariant, Mapping[str, float]],
    kept: Sequence[GraphVariant],
    agreement: Mapping[str, JsonValue],
) -> Bundle:
    """The bundle with the measured parity in its manifest, and with the graphs that are `kept`.

    Its self-test then holds the outputs of each of them. Raises ExporterError where one scores all its turns alike.
    """
    graphs = {
        variant: spec.model_copy(update={"parity_measured": dict(measured[variant])})
        for variant, spec in bundle.manifest.graphs.items()
    }
    for variant in graphs.keys() - set(kept):
        for file in map(bundle.path_of, graphs.pop(variant).files):
            for path in (file, file.with_name(file.name + DATA_SUFFIX)):
                path.unlink(missing_ok=True)
    manifest = bundle.manifest.model_copy(update={"graphs": graphs, "agreement": dict(agreement)})
    return write_self_test(bundle, manifest, bundle.self_test())


def write_draft(output: Path, manifest: Manifest, lenders: Sequence[Path]) -> Bundle:
    """The bundle of the folder's files, with a self-test and percentiles that say nothing yet."""
    turns = self_test_turns(manifest.kind)
    write_json(output / manifest.calibration, calibrate([0.0, 1.0], "nothing yet"))
    write_json(output / manifest.self_test, build_self_test(turns, [None] * len(turns)))
    return write_bundle(output, manifest, lenders)


def calibrate(values: Sequence[float], source: str) -> Calibration:
    """The 101 percentiles of the reference turns' values."""
    percentiles = np.maximum.accumulate(np.percentile(values, range(101)))
    return Calibration(percentiles=[round(float(each), 6) for each in percentiles], turns=len(values), source=source)


def _describe_graph(output: Path, variant: GraphVariant, promise: GraphPromise) -> GraphSpec:
    file, joint = GRAPH_FILES[variant], JOINT_FILES[variant]
    precision, tolerance = promise
    inputs, outputs = _describe_tensors(output / file)
    opsets = {entry.domain: entry.version for entry in onnx.load(output / file, load_external_data=False).opset_import}
    second = None
    if (output / joint).exists():
        taken, given = _describe_tensors(output / joint)
        second = JointSpec(file=joint, inputs=taken, outputs=given)
    return GraphSpec(
        file=file,
        joint=second,
        precision=precision,
        opset=opsets[""],
        inputs=inputs,
        outputs=outputs,
        parity_tolerance=tolerance,
        parity_measured={},
    )


def _describe_tensors(graph: Path) -> tuple[list[TensorSpec], list[TensorSpec]]:
    backend = OnnxBackend(graph, threads=1)
    return list(map(_describe_tensor, backend.inputs)), list(map(_describe_tensor, backend.outputs))


def _describe_tensor(tensor: Tensor) -> TensorSpec:
    return TensorSpec(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape))


# Chosen: fp16 costs nothing that a person or a ranking could see. int8's order is measured and reported, not judged.
MIN_SPEARMAN: dict[GraphVariant, float] = {"cuda-fp16": 0.999}


@dataclass(frozen=True)
class Drift:
    """Absolute differences of a graph's scores from the checkpoint's, and the rank correlation of the two."""

    turns: int
    max_abs: float
    mean_abs: float
    spearman: float

    def to_dict(self) -> dict[str, float]:
        """The manifest's `parity_measured`."""
        return {name: round(float(value), 7) for name, value in vars(self).items()}


def serve_turns(scorer: Scorer, turns: Sequence[TurnToScore]) -> list[float]:
    """Values of the turns in order, computed in batches as the service forms them."""
    values = [0.0] * len(turns)
    for batch in form_batches(scorer.encode(turns)):
        answers = [answer for pack in batch for answer in pack.answers]
        for answer, score in zip(answers, scorer.score(batch), strict=True):
            values[answer] = score.value
    return values


def check_parity(
    graph: GraphVariant,
    turns: Sequence[TurnToScore],
    served: Sequence[float],
    expected: Sequence[float],
    tolerance: float,
    *,
    keeps_order: bool = True,
) -> Drift:
    """The drift of the served values. `keeps_order` is False for what hardly differs between turns.

    Raises ParityError naming graph, text and difference where a difference exceeds the tolerance, or the rank
    correlation where a graph that must keep the order of turns does not.
    """
    differences = np.abs(np.asarray(served) - np.asarray(expected))
    worst = int(np.argmax(np.where(np.isnan(differences), np.inf, differences)))
    if not differences[worst] <= tolerance:
        said = turns[worst].context[-1].text if turns[worst].context else ""
        raise ParityError(
            f"graph {graph}: scores {turns[worst].response!r} after {said!r} as {served[worst]:.6f}, "
            f"the checkpoint as {expected[worst]:.6f}; "
            f"the difference {differences[worst]:.2e} exceeds the tolerance {tolerance:.2g}"
            f"{'' if graph == 'fp32' else '; --graph fp32 exports without it'}"
        )
    spearman, least = compute_spearman(served, expected), MIN_SPEARMAN.get(graph, -1.0)
    if keeps_order and not spearman >= least:
        raise ParityError(
            f"graph {graph}: the order of {len(turns)} turns correlates with the checkpoint's by "
            f"{spearman:.5f}; at least {least} is needed"
        )
    return Drift(len(turns), float(differences[worst]), float(differences.mean()), spearman)


def turns_of(pairs: Sequence[tuple[str, str]]) -> list[TurnToScore]:
    """(query, reply) texts as turns to score; an empty query is no context."""
    return [TurnToScore([Turn(speaker="user", text=query)] if query.strip() else [], reply) for query, reply in pairs]
