"""A language model becomes a FED bundle: graphs, tokenizer, reference turns, manifest. Refuses one without parity."""

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
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
from turnscore_service.inference.onnx_backend import OnnxBackend
from turnscore_service.scorers.fed import FedScorer
from turnscore_service.scorers.fed_options import FedBundleOptions, Loss
from turnscore_service.scorers.loading import load_scorer

from turnscore_exporters.agreement_statistics import compute_spearman
from turnscore_exporters.dialogues import read_dialogues
from turnscore_exporters.errors import ExporterError, ParityError
from turnscore_exporters.fed_checkpoint import FedCheckpoint
from turnscore_exporters.fed_graphs import DATA_SUFFIX, export_graph, export_int8
from turnscore_exporters.fed_parity import (
    VERIFIED_TURNS,
    Values,
    build_context,
    mean_values,
    rate_verified_turns,
    serve_both_losses,
    verify_published,
)
from turnscore_exporters.fed_published import LOSSES
from turnscore_exporters.parity import Drift

KIND = "fed"
FP32: GraphVariant = "fp32"
FILES: dict[GraphVariant, str] = {
    "fp32": "graphs/fp32.onnx",
    "cpu-int8": "graphs/cpu-int8.onnx",
    "cuda-fp16": "graphs/cuda-fp16.onnx",
}
PRECISIONS: dict[GraphVariant, str] = {
    "fp32": "fp32",
    "cpu-int8": "int8 weights and activations, a scale per token; losses fp32",
    "cuda-fp16": "fp16 matmuls; norms, softmax and losses fp32",
}
# Nats. fp32 differs by rounding alone; the others are chosen from what was measured, see docs/models/fed.md.
TOLERANCES: dict[GraphVariant, float] = {"fp32": 1e-4, "cpu-int8": 0.1, "cuda-fp16": 0.01}
TOKENIZER_FILE, CALIBRATION_FILE, SELF_TEST_FILE = "tokenizer.json", "calibration.json", "self_test.json"
REFERENCE_FILE = "reference.npz"
MIN_REFERENCE_TURNS = 100


@dataclass(frozen=True)
class FedExport:
    """What to export and how; `graphs` are those that the bundle keeps."""

    checkpoint: FedCheckpoint
    version: str
    options: FedBundleOptions
    reference: Sequence[Sequence[str]]
    source: str
    graphs: Sequence[GraphVariant] = (FP32, "cpu-int8")
    training: dict[str, JsonValue] | None = None
    licence: str = "that of the checkpoint"


def export_fed(job: FedExport, output: Path) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    The fp32 graph is compared with the published way, the others with it on the reference turns. Raises ParityError
    where one disagrees, ExporterError for too few reference turns; the folder is then removed.
    """
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")
    if len(job.reference) < MIN_REFERENCE_TURNS:
        raise ExporterError(f"{len(job.reference)} reference turns; at least {MIN_REFERENCE_TURNS} are needed")
    try:
        return _write(job, output)
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise


def _write(job: FedExport, output: Path) -> Bundle:
    variants = [FP32, *(each for each in job.graphs if each != FP32)]
    _write_graphs(job.checkpoint, variants, output)
    job.checkpoint.tokenizer.save(str(output / TOKENIZER_FILE), pretty=False)
    rated = rate_verified_turns(job.checkpoint, job.options)
    _write_json(output / SELF_TEST_FILE, _build_self_test(mean_values(rated[job.options.loss], job.options)))
    # The reference needs a scorer, and a scorer needs a reference: it starts with one of zeros.
    _write_reference(output, {loss: np.zeros((1, len(job.options.qualities))) for loss in LOSSES}, job)
    bundle = write_bundle(output, _describe(job, variants, output))
    published = verify_published(rated, _scorer(bundle, FP32), job.options, TOLERANCES[FP32])
    expected = serve_both_losses(_scorer(bundle, FP32), job.reference, job.options)
    _write_reference(output, expected, job)
    measured = {FP32: {f"published_{loss}": worst for loss, worst in published.items()}}
    for variant in variants[1:]:
        measured[variant] = _examine(bundle, variant, job, expected)
    manifest = bundle.manifest
    graphs = {
        variant: manifest.graphs[variant].model_copy(update={"parity_measured": measured[variant]})
        for variant in job.graphs
    }
    if FP32 not in job.graphs:
        for name in (FILES[FP32], FILES[FP32] + DATA_SUFFIX):
            (output / name).unlink(missing_ok=True)
    bundle = write_bundle(output, manifest.model_copy(update={"graphs": graphs}))
    for variant in graphs:
        load_scorer(bundle, variant, threads=1)
    return bundle


def _write_graphs(checkpoint: FedCheckpoint, variants: Sequence[GraphVariant], output: Path) -> None:
    export_graph(checkpoint.model, output / FILES[FP32])
    if "cpu-int8" in variants:
        export_int8(output / FILES[FP32], output / FILES["cpu-int8"], int(checkpoint.model.config.vocab_size))
    if "cuda-fp16" in variants:
        export_graph(checkpoint.model, output / FILES["cuda-fp16"], torch.float16)


def _scorer(bundle: Bundle, variant: GraphVariant) -> FedScorer:
    graph = bundle.path_of(bundle.manifest.graphs[variant].file)
    return FedScorer(bundle, OnnxBackend(graph, threads=torch.get_num_threads()))


def _examine(
    bundle: Bundle, variant: GraphVariant, job: FedExport, expected: Mapping[Loss, Values]
) -> dict[str, float]:
    """The drift of the default value, by the default loss, from the fp32 graph's, and the worst quality's."""
    served = serve_both_losses(_scorer(bundle, variant), job.reference, job.options)[job.options.loss]
    wanted = expected[job.options.loss]
    values, wanted_values = mean_values(served, job.options), mean_values(wanted, job.options)
    differences = np.abs(values - wanted_values)
    if not differences.max() <= TOLERANCES[variant]:
        worst = job.reference[int(differences.argmax())]
        raise ParityError(
            f"graph {variant}: the value after {worst[-1]!r} differs from the fp32 graph's by {differences.max():.2e}; "
            f"the tolerance is {TOLERANCES[variant]}"
        )
    spearman = compute_spearman(values.tolist(), wanted_values.tolist())
    drift = Drift(len(values), float(differences.max()), float(differences.mean()), spearman)
    by_quality = [
        compute_spearman(served[:, each].tolist(), wanted[:, each].tolist()) for each in range(wanted.shape[1])
    ]
    return {
        **drift.to_dict(),
        "quality_max_abs": round(float(np.abs(served - wanted).max()), 6),
        "quality_min_spearman": round(min(by_quality), 6),
    }


def read_reference(files: Sequence[Path], limit: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Draws at most `limit` system turns with all that was said before, equally from each file, without repeats.

    Where a file names no speakers, every second turn is taken for the system's.
    """
    drawn: list[tuple[str, ...]] = []
    generator = random.Random(seed)  # noqa: S311
    for path in files:
        found: set[tuple[str, ...]] = set()
        for dialogue in read_dialogues(path):
            texts = tuple(turn.text for turn in dialogue.turns)
            for place, turn in enumerate(dialogue.turns):
                if (turn.speaker == "system" or (turn.speaker == "B" and place % 2)) and turn.text.strip():
                    found.add(texts[: place + 1])
        drawn += generator.sample(sorted(found), min(limit // len(files), len(found)))
    generator.shuffle(drawn)
    return drawn


def _write_reference(output: Path, values: Mapping[Loss, Values], job: FedExport) -> None:
    """The values of every loss for percentiles, and the calibration curve of the default question."""
    arrays: dict[str, Any] = {loss: each.astype(np.float32) for loss, each in values.items()}
    np.savez_compressed(output / REFERENCE_FILE, **arrays)
    percentiles = np.percentile(mean_values(values[job.options.loss], job.options), range(101))
    curve = [round(float(each), 6) for each in np.maximum.accumulate(percentiles)]
    calibration = Calibration(percentiles=curve, turns=len(job.reference), source=job.source)
    _write_json(output / CALIBRATION_FILE, calibration)


def _build_self_test(values: Values) -> SelfTest:
    return SelfTest(
        turns=[
            SelfTestTurn(
                context=[(turn.speaker, turn.text) for turn in build_context(texts)],
                response=texts[-1],
                value=round(float(value), 6),
            )
            for texts, value in zip(VERIFIED_TURNS, values, strict=True)
        ]
    )


def _describe(job: FedExport, variants: Sequence[GraphVariant], output: Path) -> Manifest:
    options: dict[str, JsonValue] = job.options.model_dump(mode="json", exclude={"own_qualities"})
    return Manifest(
        name=KIND,
        version=job.version,
        kind=KIND,
        graphs={variant: _describe_graph(output, variant) for variant in variants},
        tokenizer=TOKENIZER_FILE,
        calibration=CALIBRATION_FILE,
        self_test=SELF_TEST_FILE,
        token_limit=job.checkpoint.window,
        options=options,
        training=job.training or {"checkpoint": Path(job.checkpoint.name).name},
        agreement={},
        licence=job.licence,
    )


def _describe_graph(output: Path, variant: GraphVariant) -> GraphSpec:
    file = FILES[variant]
    backend = OnnxBackend(output / file, threads=1)
    opsets = {entry.domain: entry.version for entry in onnx.load(output / file, load_external_data=False).opset_import}
    inputs, outputs = (
        [TensorSpec(name=each.name, dtype=each.dtype, shape=list(each.shape)) for each in tensors]
        for tensors in (backend.inputs, backend.outputs)
    )
    return GraphSpec(
        file=file,
        precision=PRECISIONS[variant],
        opset=opsets[""],
        inputs=inputs,
        outputs=outputs,
        parity_tolerance=TOLERANCES[variant],
        parity_measured={},
    )


def _write_json(path: Path, document: BaseModel) -> None:
    path.write_text(json.dumps(document.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
