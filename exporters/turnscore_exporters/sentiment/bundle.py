"""Exports a sentiment/stop checkpoint as a bundle: both outputs in one graph. Refuses one without parity."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue
from turnscore_assessment.agreement.bundles import make_turn
from turnscore_assessment.data.dialogue_sets import read_sets, read_turns
from turnscore_assessment.figures import compute_spearman
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.sentiment_stop import SentimentStopScorer
from turnscore_models import Bundle, GraphVariant

from turnscore_exporters.bundles.encoder import MIN_PARITY_TURNS, BundleSource, GraphChoice, write_files
from turnscore_exporters.bundles.parity import check_parity, serve_turns
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import (
    DEFAULT_GRAPHS,
    finish_bundle,
    fresh_folder,
    start_bundle,
)
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, GraphContract
from turnscore_exporters.graphs.fp16 import examined_graph
from turnscore_exporters.json_files import read_json
from turnscore_exporters.sentiment.model import RowBuilder, SentimentStopModel, load_model, score_rows
from turnscore_exporters.sentiment.report import read_judged_responses
from turnscore_exporters.sentiment.training import DEVELOPMENT_FILE, DEVELOPMENT_FORM
from turnscore_exporters.training.encoders import Encoder

KIND = "sentiment_stop"
# Chosen from what was measured, see docs/models/sentiment_stop.md.
INT8_TOLERANCE = 0.15
DEFAULT_CHOICE = GraphChoice(DEFAULT_GRAPHS, INT8_TOLERANCE)
CONTRACT = GraphContract(
    inputs={"input_ids": ROW_AXES, "attention_mask": ROW_AXES, "token_type_ids": ROW_AXES},
    outputs={"sentiment": ("rows",), "goes_on": ("rows",)},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long(), (EXAMPLE_IDS > 1).long()),
)


@dataclass(frozen=True, kw_only=True)
class SentimentReference:
    """Real turns for parity and calibration, their source, and judged turns on which int8's effect is measured."""

    turns: Sequence[TurnToScore]
    source: str
    judged: Sequence[TurnToScore] = ()
    qualities: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class SentimentExport:
    """The checkpoint, the graphs to write, and the output folder."""

    checkpoint: Path
    version: str
    output: Path
    reference: SentimentReference
    graphs: GraphChoice = DEFAULT_CHOICE
    licence: str = "that of the encoder and of the training data"


def read_sentiment_reference(folder: Path, limit: int, seed: int = 0) -> SentimentReference:
    """Draws at most `limit` turns, equally many from the sets whose users could leave, and adds judged turns."""
    sets = [each for each in read_sets() if each.goes_on == "observed"]
    generator = random.Random(seed)  # noqa: S311
    drawn: list[TurnToScore] = []
    for turns in read_turns(folder, sets, seed).values():
        found = [make_turn(each.context, each.response) for each in turns]
        drawn += generator.sample(found, min(limit // len(sets), len(found)))
    source = f"system turns of {' and '.join(each.name for each in sets)}, which were trained on"
    path = folder / DEVELOPMENT_FILE
    judged = read_judged_responses(path, DEVELOPMENT_FORM) if path.exists() else []
    to_score = [make_turn(each.context, each.response) for each in judged]
    return SentimentReference(turns=drawn, source=source, judged=to_score, qualities=[each.quality for each in judged])


def export_sentiment(job: SentimentExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on the reference turns, ExporterError if there are fewer
    than 200 of them; the folder is then removed.
    """
    with fresh_folder(job.output, len(job.reference.turns), MIN_PARITY_TURNS):
        return _write(job)


def _write(job: SentimentExport) -> Bundle:
    model, encoder = load_model(job.checkpoint)
    reference = job.reference
    expected = score_turns(model, encoder, reference.turns)
    tested = self_test_turns(KIND)
    self_test = build_self_test(tested, score_turns(model, encoder, tested))
    source = BundleSource(
        model=model,
        encoder=encoder,
        contract=CONTRACT,
        expected=expected,
        reference=reference.source,
        self_test=self_test,
    )
    write_files(source, job.graphs, job.output)
    bundle = _start(job, model)
    spearman: dict[str, JsonValue] = {}
    if reference.judged:
        spearman["checkpoint"] = _agree(score_turns(model, encoder, reference.judged), reference.qualities)
    measured: dict[GraphVariant, dict[str, float]] = {}
    for variant, spec in bundle.manifest.graphs.items():
        with examined_graph(bundle.path_of(spec.file), variant) as graph:
            scorer = SentimentStopScorer(bundle, OnnxBackend(graph, threads=1))
        served = serve_turns(scorer, reference.turns)
        drift = check_parity(variant, reference.turns, served, expected, spec.parity_tolerance)
        measured[variant] = drift.to_dict()
        if reference.judged:
            spearman[variant] = _agree(serve_turns(scorer, reference.judged), reference.qualities)
    agreement = {**bundle.manifest.agreement, "spearman_by_graph": spearman}
    return finish_bundle(bundle, measured, job.graphs.kept, agreement)


def score_turns(model: SentimentStopModel, encoder: Encoder, turns: Sequence[TurnToScore]) -> list[float]:
    """The checkpoint's values: sentiment plus probability of going on."""
    builder = RowBuilder(encoder, model.settings)
    rows = [builder.build([(each.speaker, each.text) for each in turn.context], turn.response) for turn in turns]
    values: list[float] = score_rows(model, rows).double().sum(1).tolist()
    return values


def _agree(values: Sequence[float], qualities: Sequence[float]) -> float:
    return round(compute_spearman(values, qualities), 4)


def _start(job: SentimentExport, model: SentimentStopModel) -> Bundle:
    return start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=model.settings.token_limit,
        options=model.settings.layout.model_dump(),
        training=read_json(job.checkpoint / "training.json"),
        agreement={"report": read_json(job.checkpoint / "report.json")},
        licence=job.licence,
    )
