"""An engagement checkpoint becomes a bundle: graphs, tokenizer, calibration, manifest. Refuses one without parity."""

import json
import shutil
from collections.abc import Mapping, Sequence
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
from turnscore_service.scorers.engagement import EngagementScorer
from turnscore_service.scorers.loading import load_scorer

from turnscore_exporters.agreement_statistics import compute_auc
from turnscore_exporters.encoders import Encoder
from turnscore_exporters.engagement_model import EngagementModel, load_model, score_pairs
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graph_export import export_fp32
from turnscore_exporters.pairs import EngagementPair
from turnscore_exporters.parity import Drift, check_parity, serve_pairs
from turnscore_exporters.quantization import quantize_int8
from turnscore_exporters.reference_turns import ReferenceTurns, texts_and_labels

KIND = "engagement"
FP32_FILE, INT8_FILE = "graphs/fp32.onnx", "graphs/cpu-int8.onnx"
TOKENIZER_FILE, CALIBRATION_FILE, SELF_TEST_FILE = "tokenizer.json", "calibration.json", "self_test.json"
MIN_PARITY_TURNS = 200
# fp32 differs by rounding alone; int8's is chosen from what was measured, see docs/models/engagement.md.
FP32_TOLERANCE, INT8_TOLERANCE = 1e-4, 0.15
PRECISIONS: dict[GraphVariant, str] = {"fp32": "fp32", "cpu-int8": "int8 weights and activations, a scale per token"}

# Written for this file: greetings, dull and lively replies, numbers, other scripts, markup, a missing query, long text.
SELF_TEST_TEXTS: tuple[tuple[str, str], ...] = (
    ("hi, what did you do today?", "i hiked up a volcano and nearly lost my hat. ever been on one?"),
    ("hi, what did you do today?", "ok."),
    ("do you like music?", "I don't know."),
    ("do you like music?", "Very much! I play the cello in a small orchestra. Which instrument would you learn?"),
    ("how much is the ticket to Turin?", "It's 42.50 euros, and the 9:15 train still has seats by the window."),
    ("any plans for the weekend?", "We might paint the kitchen yellow, if my brother remembers to bring the ladder."),
    ("are you a robot?", "no no no no no no"),
    ("", "Good evening! What would you like to talk about?"),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("was machst du heute?", "Ich gehe schwimmen, und du?"),
    ("tell me a story 🙂", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 4),
    ("what is 2 + 2?", "<b>4</b>"),
)


@dataclass(frozen=True)
class ExportData:
    """Real turns for parity and calibration, and the judged sets on which int8's effect is measured."""

    reference: ReferenceTurns
    judged: Mapping[str, Sequence[EngagementPair]]


@dataclass(frozen=True)
class GraphFindings:
    """What was measured of one graph."""

    drift: Drift
    auc: dict[str, float]


@dataclass(frozen=True)
class EngagementExport:
    """What to export and where to; `int8_tolerance` is the largest difference of a value the int8 graph may show."""

    checkpoint: Path
    version: str
    output: Path
    data: ExportData
    int8_tolerance: float = INT8_TOLERANCE
    licence: str = "that of the encoder and of the training data"


def export_engagement(job: EngagementExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on the reference turns, ExporterError if there are fewer
    than 200 of them; the folder is then removed.
    """
    if job.output.exists() and any(job.output.iterdir()):
        raise ExporterError(f"{job.output}: is not empty; choose another folder")
    found = len(job.data.reference.pairs)
    if found < MIN_PARITY_TURNS:
        raise ExporterError(f"{found} reference turns, parity needs at least {MIN_PARITY_TURNS}")
    try:
        return _write(job)
    except ExporterError:
        shutil.rmtree(job.output, ignore_errors=True)
        raise


def _write(job: EngagementExport) -> Bundle:
    output, data = job.output, job.data
    model, encoder = load_model(job.checkpoint)
    export_fp32(model, output / FP32_FILE)
    quantize_int8(output / FP32_FILE, output / INT8_FILE)
    encoder.tokenizer.save(str(output / TOKENIZER_FILE))
    expected = score_pairs(model, encoder, data.reference.pairs)
    _write_json(output / CALIBRATION_FILE, calibrate(expected, data.reference.source))
    _write_json(output / SELF_TEST_FILE, _build_self_test(model, encoder))
    manifest = _describe(job, model)
    bundle = write_bundle(output, manifest)
    findings = {variant: _examine(bundle, variant, data, expected) for variant in manifest.graphs}
    auc: dict[str, JsonValue] = {"checkpoint": {**_checkpoint_auc(model, encoder, data)}}
    auc |= {variant: {**found.auc} for variant, found in findings.items()}
    agreement = {**manifest.agreement, "auc_by_graph": auc}
    graphs = {
        variant: spec.model_copy(update={"parity_measured": findings[variant].drift.to_dict()})
        for variant, spec in manifest.graphs.items()
    }
    bundle = write_bundle(output, manifest.model_copy(update={"graphs": graphs, "agreement": agreement}))
    for variant in graphs:
        load_scorer(bundle, variant, threads=1)
    return bundle


def _examine(bundle: Bundle, variant: GraphVariant, data: ExportData, expected: Sequence[float]) -> GraphFindings:
    spec = bundle.manifest.graphs[variant]
    scorer = EngagementScorer(bundle, OnnxBackend(bundle.path_of(spec.file), threads=1))
    served = serve_pairs(scorer, data.reference.pairs)
    drift = check_parity(variant, data.reference.pairs, served, expected, spec.parity_tolerance)
    auc = {}
    for name, pairs in data.judged.items():
        texts, labels = texts_and_labels(pairs)
        auc[name] = round(compute_auc(serve_pairs(scorer, texts), labels), 4)
    return GraphFindings(drift, auc)


def _checkpoint_auc(model: EngagementModel, encoder: Encoder, data: ExportData) -> dict[str, float]:
    auc = {}
    for name, pairs in data.judged.items():
        texts, labels = texts_and_labels(pairs)
        auc[name] = round(compute_auc(score_pairs(model, encoder, texts), labels), 4)
    return auc


def calibrate(values: Sequence[float], source: str) -> Calibration:
    """The 101 percentiles of the reference turns' values."""
    percentiles = np.maximum.accumulate(np.percentile(values, range(101)))
    return Calibration(percentiles=[round(float(each), 6) for each in percentiles], turns=len(values), source=source)


def _build_self_test(model: EngagementModel, encoder: Encoder) -> SelfTest:
    values = score_pairs(model, encoder, SELF_TEST_TEXTS)
    return SelfTest(
        turns=[
            SelfTestTurn(context=[("user", query)] if query else [], response=reply, value=round(value, 6))
            for (query, reply), value in zip(SELF_TEST_TEXTS, values, strict=True)
        ]
    )


def _describe(job: EngagementExport, model: EngagementModel) -> Manifest:
    settings = model.settings
    return Manifest(
        name=KIND,
        version=job.version,
        kind=KIND,
        graphs={
            "fp32": _describe_graph(job.output, FP32_FILE, "fp32", FP32_TOLERANCE),
            "cpu-int8": _describe_graph(job.output, INT8_FILE, "cpu-int8", job.int8_tolerance),
        },
        tokenizer=TOKENIZER_FILE,
        calibration=CALIBRATION_FILE,
        self_test=SELF_TEST_FILE,
        token_limit=settings.token_limit,
        training={
            **_read_json(job.checkpoint / "training.json"),
            "combination": str(settings.combination),
            "heads": settings.heads,
        },
        agreement={"report": _shorten(_read_json(job.checkpoint / "report.json"))},
        licence=job.licence,
    )


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


def _shorten(report: dict[str, Any]) -> dict[str, Any]:
    """Value and interval of AUC and Spearman on each test set, and the AUC of the reply's length."""
    lengths = report.get("length", {})
    return {
        name: {
            "pairs": figures["pairs"],
            "auc": figures["auc"],
            "spearman": figures["spearman"],
            "given_length": figures["given_length"],
            "auc_of_length": {kind: each["auc"]["value"] for kind, each in lengths[name].items()},
        }
        for name, figures in report.get("model", {}).items()
        if name in lengths
    }


def _read_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return document


def _write_json(path: Path, document: BaseModel) -> None:
    path.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
