"""Exports USR as a bundle: two models in one graph, of any BERT or RoBERTa checkpoints. Refuses one without parity."""

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import compose
from pydantic import ValidationError
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.usr import (
    KIND,
    MASKED,
    MASKED_INPUTS,
    RETRIEVAL,
    RETRIEVAL_INPUTS,
    PartWeight,
    UsrFormula,
    UsrOptions,
    UsrScorer,
)
from turnscore_models import Bundle, GraphVariant

from turnscore_exporters.bundles.encoder import MIN_PARITY_TURNS, GraphChoice
from turnscore_exporters.bundles.parity import Drift, check_parity, serve_turns, turns_of
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import (
    CALIBRATION_FILE,
    GRAPH_FILES,
    SELF_TEST_FILE,
    TOKENIZER_FILE,
    calibrate,
    finish_bundle,
    fresh_folder,
    start_bundle,
)
from turnscore_exporters.data.reference_turns import ReferenceTurns
from turnscore_exporters.errors import CheckpointError, ExporterError
from turnscore_exporters.graphs.export import BertGraph, GraphContract, export_fp32
from turnscore_exporters.graphs.int8 import quantize_int8
from turnscore_exporters.graphs.unpadding import skip_padding
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.pair_models.models import (
    Floats,
    PairCheckpoint,
    load_masked_model,
    load_pair_model,
    score_masked,
    score_pairs,
)
from turnscore_exporters.pair_models.pair_graphs import JointGraph, MaskedGraph, joint_contract, masked_contract

LEAST_SPREAD = 1e-3
"""Least relative spread of a part: standard deviation over root mean square, on the turns that fit the weights. A part
below it weighs 0: divided by such a spread, fp32's rounding (1e-7 of its size, measured) would show in the value.
Chosen: ten times what parity allows an fp32 graph.
"""
MASKED_FOLDER, RETRIEVAL_FOLDER, FORMULA_FILE = "masked", "retrieval", "overall.json"
"""Names in the folder that `turnscore train baseline usr` wrote."""
PROBE_ROWS, PROBE_TOKENS = 16, 32
Parts = Mapping[str, Floats]


@dataclass(frozen=True, kw_only=True)
class UsrExport:
    """The checkpoints, the graphs to write, and the output folder. Without a formula both parts have equal weight."""

    masked: str
    retrieval: str
    formula: Path | None
    version: str
    output: Path
    reference: ReferenceTurns
    graphs: GraphChoice
    token_limit: int = 96
    licence: str = "that of the checkpoints"


def export_usr(job: UsrExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoints on the reference turns, EncoderError or CheckpointError
    where they cannot be read or do not go together; the folder is then removed.
    """
    if "cuda-fp16" in job.graphs.kept:
        raise ExporterError("--graph cuda-fp16: usr has fp32 and cpu-int8 alone")
    with fresh_folder(job.output, len(job.reference.pairs), MIN_PARITY_TURNS):
        return _write(job, *_read_models(job))


def _read_models(job: UsrExport) -> tuple[PairCheckpoint, PairCheckpoint]:
    masked, retrieval = load_masked_model(job.masked, job.token_limit), load_pair_model(job.retrieval, job.token_limit)
    if masked.tokenizer.get_vocab() != retrieval.tokenizer.get_vocab():
        raise CheckpointError(f"checkpoints {masked.name} and {retrieval.name}: have different vocabularies")
    if masked.token_limit != retrieval.token_limit or masked.has_segments != retrieval.has_segments:
        raise CheckpointError(f"checkpoints {masked.name} and {retrieval.name}: differ in token limit or segment ids")
    return masked, retrieval


def _write(job: UsrExport, masked: PairCheckpoint, retrieval: PairCheckpoint) -> Bundle:
    options = UsrOptions(overall=_read_formula(job, masked, retrieval))
    masked, retrieval = _limit(masked, options), _limit(retrieval, options)
    expected = _judge(masked, retrieval, options, job.reference.pairs)
    tested = self_test_turns(KIND)
    said = [(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]
    write_json(job.output / SELF_TEST_FILE, build_self_test(tested, _judge(masked, retrieval, options, said).tolist()))
    write_json(job.output / CALIBRATION_FILE, calibrate(expected.tolist(), job.reference.source))
    masked.tokenizer.save(str(job.output / TOKENIZER_FILE), pretty=False)
    _write_graphs(job, masked, retrieval)
    bundle = start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=masked.token_limit,
        options=options.model_dump(mode="json", exclude_none=True),
        training={"masked": Path(job.masked).name, "retrieval": Path(job.retrieval).name},
        agreement={},
        licence=job.licence,
    )
    drifts = {variant: _examine(bundle, variant, job, expected) for variant in bundle.manifest.graphs}
    return finish_bundle(bundle, {variant: each.to_dict() for variant, each in drifts.items()}, job.graphs.kept, {})


def _judge(
    masked: PairCheckpoint, retrieval: PairCheckpoint, options: UsrOptions, pairs: Sequence[tuple[str, str]]
) -> Floats:
    """The checkpoints' values; as in the service, a response without tokens has its retrieval alone."""
    found = score_parts(masked, retrieval, pairs)
    return np.where(np.isnan(found[MASKED]), found[RETRIEVAL], apply_formula(options.overall, found))


def _limit(checkpoint: PairCheckpoint, options: UsrOptions) -> PairCheckpoint:
    """The checkpoint cut to as many response tokens as the service reads."""
    return replace(checkpoint, most_response_tokens=options.response_tokens)


def _read_formula(job: UsrExport, masked: PairCheckpoint, retrieval: PairCheckpoint) -> UsrFormula:
    """The file's formula; else each part in its own standard deviations on the reference turns, with equal weight."""
    if job.formula is not None:
        try:
            return UsrFormula.model_validate(read_json(job.formula))
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise CheckpointError(f"{job.formula}: {where}: {wrong['msg']}") from error
    return weigh_alike(score_parts(masked, retrieval, job.reference.pairs))


def _write_graphs(job: UsrExport, masked: PairCheckpoint, retrieval: PairCheckpoint) -> None:
    """Exports each model as every BERT is exported, then merges the two graphs."""
    models: Mapping[str, tuple[BertGraph, GraphContract]] = {
        MASKED_INPUTS: (MaskedGraph(masked).eval(), masked_contract(masked)),
        RETRIEVAL_INPUTS: (JointGraph(retrieval).eval(), joint_contract(retrieval)),
    }
    with tempfile.TemporaryDirectory() as folder:
        plain, small = [], []
        for prefix, (model, contract) in models.items():
            fp32, int8 = Path(folder) / f"{prefix}fp32.onnx", Path(folder) / f"{prefix}int8.onnx"
            export_fp32(model, contract, fp32)
            plain.append((prefix, fp32))
            if "cpu-int8" in job.graphs.kept:
                quantize_int8(fp32, int8, _probe_inputs(contract, masked))
                skip_padding(int8)
                small.append((prefix, int8))
        join_graphs(plain, job.output / GRAPH_FILES["fp32"])
        if small:
            join_graphs(small, job.output / GRAPH_FILES["cpu-int8"])


def join_graphs(graphs: Sequence[tuple[str, Path]], output: Path) -> None:
    """One graph of several that share nothing; each name gets its graph's prefix."""
    output.parent.mkdir(parents=True, exist_ok=True)
    joined = None
    for prefix, path in graphs:
        model = compose.add_prefix(onnx.load(path), prefix)
        _prefix_axes(model.graph, prefix)
        joined = model if joined is None else compose.merge_models(joined, model, io_map=[])
    assert joined is not None
    onnx.save(joined, output)


def _prefix_axes(graph: onnx.GraphProto, prefix: str) -> None:
    """The two models may have different numbers of rows."""
    for tensor in (*graph.input, *graph.output, *graph.value_info):
        for axis in tensor.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = f"{prefix}{axis.dim_param}"


def _probe_inputs(contract: GraphContract, checkpoint: PairCheckpoint) -> dict[str, Any]:
    """Rows of random tokens that show the large channels."""
    shape = (PROBE_ROWS, PROBE_TOKENS)
    inputs: dict[str, Any] = {
        name: np.ones(shape if len(axes) == 2 else shape[:1], dtype=np.int64) for name, axes in contract.inputs.items()
    }
    inputs["input_ids"] = np.random.default_rng(0).integers(0, int(checkpoint.config.vocab_size), shape)
    return inputs


def _examine(bundle: Bundle, variant: GraphVariant, job: UsrExport, expected: Floats) -> Drift:
    spec = bundle.manifest.graphs[variant]
    scorer = UsrScorer(bundle, OnnxBackend(bundle.path_of(spec.file), threads=1))
    turns = turns_of(job.reference.pairs)
    return check_parity(variant, turns, serve_turns(scorer, turns), expected.tolist(), spec.parity_tolerance)


def score_parts(masked: PairCheckpoint, retrieval: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Parts:
    """USR's parts of each (query, response)."""
    return {MASKED: score_masked(masked, pairs), RETRIEVAL: score_pairs(retrieval, pairs)}


def apply_formula(formula: UsrFormula, found: Parts) -> Floats:
    """The value of each turn, from its own parts alone."""
    rows = zip(*found.values(), strict=True)
    return np.array([formula.apply(dict(zip(found, row, strict=True))) for row in rows], dtype=np.float64)


def weigh_alike(found: Parts) -> UsrFormula:
    """Each part that varies in its own standard deviations, with equal weight."""
    scales = find_telling(found)
    return make_formula(found, scales, dict.fromkeys(scales, 1 / len(scales)), 0.0)


def find_telling(found: Parts) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the parts that vary; ExporterError naming every spread where none does."""
    scales = {name: (float(np.nanmean(values)), float(np.nanstd(values))) for name, values in found.items()}
    telling = {name: each for name, each in scales.items() if each[1] > LEAST_SPREAD * math.hypot(*each)}
    if not telling:
        spreads = ", ".join(f"{name} by {spread:.1g}" for name, (_, spread) in scales.items())
        raise ExporterError(f"every part is the same for all turns, or differs too little to weigh it ({spreads})")
    return telling


def make_formula(
    names: Iterable[str], scales: Mapping[str, tuple[float, float]], weights: Mapping[str, float], bias: float
) -> UsrFormula:
    """The formula of the parts with these means and standard deviations; the other parts weigh 0."""
    parts = {
        name: PartWeight(center=scales[name][0], scale=scales[name][1], weight=weights[name])
        if name in scales
        else PartWeight(center=0.0, scale=1.0, weight=0.0)
        for name in names
    }
    return UsrFormula(parts=parts, bias=bias)
