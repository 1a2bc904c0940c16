"""Exports an engagement checkpoint as a bundle: graphs, tokenizer, calibration, manifest. Requires parity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from turnscore_assessment.correlations import compute_auc
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_models import Bundle, GraphVariant

from turnscore_exporters.bundles.encoder import MIN_PARITY_TURNS, BundleSource, GraphChoice, write_files
from turnscore_exporters.bundles.parity import Drift, check_parity, serve_turns, turns_of
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import (
    DEFAULT_GRAPHS,
    finish_bundle,
    fresh_folder,
    start_bundle,
)
from turnscore_exporters.data.convai import EngagementPair
from turnscore_exporters.data.reference_turns import ReferenceTurns, texts_and_labels
from turnscore_exporters.engagement.model import CONTRACT, EngagementModel, load_model, score_pairs
from turnscore_exporters.graphs.fp16 import examined_graph
from turnscore_exporters.json_files import read_json
from turnscore_exporters.training.encoders import Encoder

KIND = "engagement"
# Chosen from what was measured, see docs/models/engagement.md.
INT8_TOLERANCE = 0.15
DEFAULT_CHOICE = GraphChoice(DEFAULT_GRAPHS, INT8_TOLERANCE)


@dataclass(frozen=True)
class ExportData:
    """Real turns for parity and calibration, and the judged sets on which int8's effect is measured."""

    reference: ReferenceTurns
    judged: Mapping[str, Sequence[EngagementPair]]


@dataclass(frozen=True)
class GraphFindings:
    """The figures of one graph."""

    drift: Drift
    auc: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class EngagementExport:
    """The checkpoint, the graphs to write, and the output folder."""

    checkpoint: Path
    version: str
    output: Path
    data: ExportData
    graphs: GraphChoice = DEFAULT_CHOICE
    licence: str = "that of the encoder and of the training data"


def export_engagement(job: EngagementExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on the reference turns, ExporterError if there are fewer
    than 200 of them; the folder is then removed.
    """
    with fresh_folder(job.output, len(job.data.reference.pairs), MIN_PARITY_TURNS):
        return _write(job)


def _write(job: EngagementExport) -> Bundle:
    output, data = job.output, job.data
    model, encoder = load_model(job.checkpoint)
    expected = score_pairs(model, encoder, data.reference.pairs)
    tested = self_test_turns(KIND)
    pairs = [(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]
    self_test = build_self_test(tested, score_pairs(model, encoder, pairs))
    source = BundleSource(
        model=model,
        encoder=encoder,
        contract=CONTRACT,
        expected=expected,
        reference=data.reference.source,
        self_test=self_test,
    )
    write_files(source, job.graphs, output)
    bundle = _start(job, model)
    findings = {variant: _examine(bundle, variant, data, expected) for variant in bundle.manifest.graphs}
    auc: dict[str, JsonValue] = {"checkpoint": {**_checkpoint_auc(model, encoder, data)}}
    auc |= {variant: {**found.auc} for variant, found in findings.items()}
    measured = {variant: found.drift.to_dict() for variant, found in findings.items()}
    agreement = {**bundle.manifest.agreement, "auc_by_graph": auc}
    return finish_bundle(bundle, measured, job.graphs.kept, agreement)


def _examine(bundle: Bundle, variant: GraphVariant, data: ExportData, expected: Sequence[float]) -> GraphFindings:
    spec = bundle.manifest.graphs[variant]
    with examined_graph(bundle.path_of(spec.file), variant) as graph:
        scorer = EngagementScorer(bundle, OnnxBackend(graph, threads=1))
    turns = turns_of(data.reference.pairs)
    drift = check_parity(variant, turns, serve_turns(scorer, turns), expected, spec.parity_tolerance)
    auc = {}
    for name, pairs in data.judged.items():
        texts, labels = texts_and_labels(pairs)
        auc[name] = round(compute_auc(serve_turns(scorer, turns_of(texts)), labels), 4)
    return GraphFindings(drift, auc)


def _checkpoint_auc(model: EngagementModel, encoder: Encoder, data: ExportData) -> dict[str, float]:
    auc = {}
    for name, pairs in data.judged.items():
        texts, labels = texts_and_labels(pairs)
        auc[name] = round(compute_auc(score_pairs(model, encoder, texts), labels), 4)
    return auc


def _start(job: EngagementExport, model: EngagementModel) -> Bundle:
    settings = model.settings
    return start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=settings.token_limit,
        training={
            **read_json(job.checkpoint / "training.json"),
            "combination": str(settings.combination),
            "heads": settings.heads,
        },
        agreement={"report": _shorten(read_json(job.checkpoint / "report.json"))},
        licence=job.licence,
    )


def _shorten(report: dict[str, Any]) -> dict[str, Any]:
    """AUC and Spearman with intervals on each test set, and the AUC of the reply's length."""
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
