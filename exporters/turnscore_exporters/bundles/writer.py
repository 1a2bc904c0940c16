"""Writes a bundle of any scorer: files, calibration, manifest parts. Knows no scorer; decides no parity."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
from pydantic import JsonValue
from turnscore_core.inference.onnx_backend import OnnxBackend, Tensor
from turnscore_models import (
    Bundle,
    Calibration,
    GraphSpec,
    GraphVariant,
    Manifest,
    TensorSpec,
    write_bundle,
)

from turnscore_exporters.bundles.self_test import write_self_test
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.fp16 import DATA_SUFFIX

GRAPH_FILES: dict[GraphVariant, str] = {
    "fp32": "graphs/fp32.onnx",
    "cpu-int8": "graphs/cpu-int8.onnx",
    "cuda-fp16": "graphs/cuda-fp16.onnx",
}
DEFAULT_GRAPHS: tuple[GraphVariant, ...] = ("fp32", "cpu-int8")
TOKENIZER_FILE, CALIBRATION_FILE, SELF_TEST_FILE = "tokenizer.json", "calibration.json", "self_test.json"
# fp32 differs by rounding alone.
FP32_TOLERANCE = 1e-4


@dataclass(frozen=True)
class GraphPromise:
    """A graph's precision in words, and the largest allowed difference of a value."""

    precision: str
    tolerance: float


def choose_graphs(names: Sequence[str] | None) -> tuple[GraphVariant, ...]:
    """The graphs that `--graph` names, in order; the default ones without any. ExporterError for an unknown name."""
    known: dict[str, GraphVariant] = {each: each for each in get_args(GraphVariant)}
    for name in names or ():
        if name not in known:
            raise ExporterError(f"--graph is {name!r}, expected one of {', '.join(known)}")
    return tuple(dict.fromkeys(known[name] for name in names or DEFAULT_GRAPHS))


@contextmanager
def fresh_folder(output: Path, reference_turns: int, least_turns: int) -> Iterator[None]:
    """Fills the folder inside the block; removes what was written if anything stops it.

    Raises ExporterError at once where the folder is not empty or the reference turns are too few for parity.
    """
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")
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
    graphs = {variant: _describe_graph(output, GRAPH_FILES[variant], promise) for variant, promise in promises.items()}
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
        file = bundle.path_of(graphs.pop(variant).file)
        for path in (file, file.with_name(file.name + DATA_SUFFIX)):
            path.unlink(missing_ok=True)
    manifest = bundle.manifest.model_copy(update={"graphs": graphs, "agreement": dict(agreement)})
    return write_self_test(bundle, manifest, bundle.self_test())


def calibrate(values: Sequence[float], source: str) -> Calibration:
    """The 101 percentiles of the reference turns' values."""
    percentiles = np.maximum.accumulate(np.percentile(values, range(101)))
    return Calibration(percentiles=[round(float(each), 6) for each in percentiles], turns=len(values), source=source)


def _describe_graph(output: Path, file: str, promise: GraphPromise) -> GraphSpec:
    backend = OnnxBackend(output / file, threads=1)
    opsets = {entry.domain: entry.version for entry in onnx.load(output / file, load_external_data=False).opset_import}
    return GraphSpec(
        file=file,
        precision=promise.precision,
        opset=opsets[""],
        inputs=[_describe_tensor(each) for each in backend.inputs],
        outputs=[_describe_tensor(each) for each in backend.outputs],
        parity_tolerance=promise.tolerance,
        parity_measured={},
    )


def _describe_tensor(tensor: Tensor) -> TensorSpec:
    return TensorSpec(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape))
