"""Writing a bundle of a BERT scorer: files, calibration, graphs, manifest parts. Knows no task; decides no parity."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from pydantic import BaseModel, JsonValue
from turnscore_models import (
    Bundle,
    Calibration,
    GraphSpec,
    GraphVariant,
    Manifest,
    SelfTest,
    SelfTestTurn,
    TensorSpec,
    write_bundle,
)
from turnscore_service.inference.onnx_backend import OnnxBackend, Tensor
from turnscore_service.scorers.loading import load_scorer
from turnscore_service.scorers.scorer import TurnToScore

from turnscore_exporters.encoders import Encoder
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graph_export import BertGraph, GraphContract, export_fp32
from turnscore_exporters.parity import Drift
from turnscore_exporters.quantization import quantize_int8

FP32_FILE, INT8_FILE = "graphs/fp32.onnx", "graphs/cpu-int8.onnx"
TOKENIZER_FILE, CALIBRATION_FILE, SELF_TEST_FILE = "tokenizer.json", "calibration.json", "self_test.json"
MIN_PARITY_TURNS = 200
# fp32 differs by rounding alone.
FP32_TOLERANCE = 1e-4
PRECISIONS: dict[GraphVariant, str] = {"fp32": "fp32", "cpu-int8": "int8 weights and activations, a scale per token"}


@dataclass(frozen=True)
class BundleSource:
    """What a bundle's files are made of. `expected` are the checkpoint's values of the reference turns."""

    model: BertGraph
    encoder: Encoder
    contract: GraphContract
    expected: Sequence[float]
    reference: str
    self_test: SelfTest


@contextmanager
def fresh_folder(output: Path, reference_turns: int) -> Iterator[None]:
    """A block that fills the folder, or leaves none behind: ExporterError removes what was written.

    ExporterError at once where the folder is not empty or the reference turns are too few for parity.
    """
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")
    if reference_turns < MIN_PARITY_TURNS:
        raise ExporterError(f"{reference_turns} reference turns, parity needs at least {MIN_PARITY_TURNS}")
    try:
        yield
    except ExporterError:
        shutil.rmtree(output, ignore_errors=True)
        raise


def write_files(source: BundleSource, output: Path) -> None:
    """Writes both graphs, the tokenizer, the calibration curve and the self-test."""
    export_fp32(source.model, source.contract, output / FP32_FILE)
    quantize_int8(output / FP32_FILE, output / INT8_FILE)
    source.encoder.tokenizer.save(str(output / TOKENIZER_FILE), pretty=False)
    _write_document(output / CALIBRATION_FILE, calibrate(source.expected, source.reference))
    _write_document(output / SELF_TEST_FILE, source.self_test)


def start_bundle(output: Path, kind: str, version: str, int8_tolerance: float, **rest: Any) -> Bundle:
    """The bundle of the files in the folder, parity not yet measured; `rest` are the manifest's other fields."""
    graphs: dict[GraphVariant, GraphSpec] = {
        "fp32": _describe_graph(output, FP32_FILE, "fp32", FP32_TOLERANCE),
        "cpu-int8": _describe_graph(output, INT8_FILE, "cpu-int8", int8_tolerance),
    }
    files = {"tokenizer": TOKENIZER_FILE, "calibration": CALIBRATION_FILE, "self_test": SELF_TEST_FILE}
    return write_bundle(output, Manifest(name=kind, kind=kind, version=version, graphs=graphs, **files, **rest))


def finish_bundle(bundle: Bundle, drifts: Mapping[GraphVariant, Drift], agreement: dict[str, JsonValue]) -> Bundle:
    """The bundle with what was measured in its manifest, each graph loaded as the service does."""
    manifest: Manifest = bundle.manifest
    graphs = {
        variant: spec.model_copy(update={"parity_measured": drifts[variant].to_dict()})
        for variant, spec in manifest.graphs.items()
    }
    finished = write_bundle(bundle.folder, manifest.model_copy(update={"graphs": graphs, "agreement": agreement}))
    for variant in graphs:
        load_scorer(finished, variant, threads=1)
    return finished


def calibrate(values: Sequence[float], source: str) -> Calibration:
    """The 101 percentiles of the reference turns' values."""
    percentiles = np.maximum.accumulate(np.percentile(values, range(101)))
    return Calibration(percentiles=[round(float(each), 6) for each in percentiles], turns=len(values), source=source)


def build_self_test(turns: Sequence[TurnToScore], values: Sequence[float]) -> SelfTest:
    """The turns with the values that the checkpoint gives them."""
    return SelfTest(
        turns=[
            SelfTestTurn(
                context=[(each.speaker, each.text) for each in turn.context],
                response=turn.response,
                value=round(value, 6),
            )
            for turn, value in zip(turns, values, strict=True)
        ]
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no file."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return document


def _describe_graph(output: Path, file: str, variant: GraphVariant, tolerance: float) -> GraphSpec:
    backend = OnnxBackend(output / file, threads=1)
    opsets = {entry.domain: entry.version for entry in onnx.load(output / file).opset_import}
    return GraphSpec(
        file=file,
        precision=PRECISIONS[variant],
        opset=opsets[""],
        inputs=[_describe_tensor(each) for each in backend.inputs],
        outputs=[_describe_tensor(each) for each in backend.outputs],
        parity_tolerance=tolerance,
        parity_measured={},
    )


def _describe_tensor(tensor: Tensor) -> TensorSpec:
    return TensorSpec(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape))


def _write_document(path: Path, document: BaseModel) -> None:
    path.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
