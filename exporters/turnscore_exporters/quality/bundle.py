"""A quality checkpoint becomes a bundle: all heads in one graph, with its formula. Refuses one without parity."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.correlations import compute_auc
from turnscore_assessment.data.dialogue_sets import STATED, read_population
from turnscore_assessment.data.dialogues import Spoken
from turnscore_assessment.data.labelled_turns import read_development_sets
from turnscore_assessment.figures import compute_spearman
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.quality import (
    COMPARED_ROWS,
    HEADS,
    REACTIONS,
    HeadCurves,
    QualityOptions,
    QualityScorer,
    ValueFormula,
    lay_out_batch,
)
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_models import Bundle, GraphVariant

from turnscore_exporters.bundles.checkpoint import BundleSource, write_files
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import (
    DEFAULT_GRAPHS,
    MIN_PARITY_TURNS,
    PACKS_AT_ONCE,
    GraphChoice,
    calibrate,
    check_parity,
    finish_bundle,
    fresh_folder,
    start_bundle,
)
from turnscore_exporters.errors import CheckpointError, ParityError
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, GraphContract
from turnscore_exporters.graphs.fp16 import examined_graph
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.quality.model import QualityModel, RowBuilder, load_model, smooth_joint_layers
from turnscore_exporters.quality.value import VALUE_FILE, read_formula, score_heads
from turnscore_exporters.training.checkpoints import read_smoothing
from turnscore_exporters.training.encoders import Encoder

KIND = "quality"
HEADS_FILE, THRESHOLD_FILE = "heads.json", "threshold.json"
"""A checkpoint may have the second: the manifest's `threshold`."""
# Chosen as for the other BERT scorers, see docs/models/engagement.md.
INT8_TOLERANCE = 0.15
PROBED = 256
"""Turns that show which channels are large."""
DEFAULT_CHOICE = GraphChoice(DEFAULT_GRAPHS, INT8_TOLERANCE)
PAIRS, CONTEXT_AXES = ("pairs",), ("pairs", "context_tokens")
CONTRACT = GraphContract(
    inputs={
        "input_ids": ROW_AXES,
        "attention_mask": ROW_AXES,
        "response_row": PAIRS,
        "context_rows": ("pairs", ""),
        "context_tokens": CONTEXT_AXES,
        "places": CONTEXT_AXES,
    },
    outputs=dict.fromkeys((*HEADS, *REACTIONS), PAIRS),
    examples=(
        EXAMPLE_IDS,
        (EXAMPLE_IDS > 0).long(),
        torch.tensor([0, 1]),
        torch.tensor([[1, 2, *[-1] * (COMPARED_ROWS - 2)], [-1] * COMPARED_ROWS]),
        torch.tensor([[4, 5, 6, 8, 9], [-1] * 5]),
        torch.tensor([[0, 0, 0, 3, 3], [0] * 5]),
    ),
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class QualityReference:
    """Turns for parity and calibration, where they come from, and rated ones by set to see what int8 costs."""

    turns: Sequence[TurnToScore]
    source: str
    rated: Mapping[str, tuple[Sequence[TurnToScore], Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QualityExport:
    """What to export, in which graphs, and where to."""

    checkpoint: Path
    version: str
    output: Path
    reference: QualityReference
    graphs: GraphChoice = DEFAULT_CHOICE
    licence: str = "that of the encoder and of the training data"


@dataclass(frozen=True)
class TurnHeads:
    """Heads [turns, heads] of some turns, and each one's warnings."""

    heads: Floats
    warnings: Sequence[Sequence[str]]

    def values(self, formula: ValueFormula) -> list[float]:
        """The value of each turn."""
        weighed = formula.weigh(self.heads)
        return [
            formula.value_of(each - formula.deduct(warned)) for each, warned in zip(weighed, self.warnings, strict=True)
        ]


def read_quality_reference(folder: Path, limit: int, seed: int = 0) -> QualityReference:
    """Draws at most `limit` turns of the population that no model was trained on; all rated turns there are."""
    population = [make_turn(each.context, each.response) for each in read_population(folder).turns]
    drawn = random.Random(seed).sample(population, min(limit, len(population)))  # noqa: S311
    rated = {
        name: ([make_turn(each.context, each.response) for each in turns], [each.rating for each in turns])
        for name, turns in read_development_sets(folder).items()
    }
    return QualityReference(drawn, STATED, rated)


def export_quality(job: QualityExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on a value or a head of the reference turns,
    ExporterError if there are fewer than 200 of them; the folder is then removed.
    """
    with fresh_folder(job.output, len(job.reference.turns), MIN_PARITY_TURNS):
        return _write(job)


def _write(job: QualityExport) -> Bundle:
    model, encoder = load_model(job.checkpoint)
    formula = read_options(job.checkpoint, model).value
    reference = job.reference
    expected = score_turns(model, encoder, reference.turns)
    values, heads = expected.values(formula), expected.heads
    probed = RowBuilder(encoder, model.settings.layout).build(_texts_of(reference.turns[:PROBED]))
    smooth_joint_layers(model, probed)
    tested = self_test_turns(KIND)
    self_test = build_self_test(tested, score_turns(model, encoder, tested).values(formula))
    write_files(
        BundleSource(
            model=model,
            encoder=encoder,
            contract=CONTRACT,
            expected=values,
            reference=reference.source,
            self_test=self_test,
            smoothing=read_smoothing(job.checkpoint),
            probe_inputs=lay_out_batch(probed, pad_id=0),
        ),
        job.graphs,
        job.output,
    )
    curves = {name: calibrate(heads[:, place].tolist(), reference.source) for place, name in enumerate(HEADS)}
    write_json(job.output / HEADS_FILE, HeadCurves.model_validate({"curves": curves}))
    bundle = _start(job, model)
    agreement: dict[str, JsonValue] = {"checkpoint": _agree(reference, formula, partial(score_turns, model, encoder))}
    measured: dict[GraphVariant, dict[str, float]] = {}
    for variant, spec in bundle.manifest.graphs.items():
        with examined_graph(bundle.path_of(spec.file), variant) as graph:
            scorer = QualityScorer(bundle, OnnxBackend(graph, threads=1))
        measured[variant] = _check(variant, scorer, reference.turns, expected, formula, spec.parity_tolerance)
        agreement[variant] = _agree(reference, formula, partial(serve_turns, scorer))
    return finish_bundle(
        bundle, measured, job.graphs.kept, {**bundle.manifest.agreement, "agreement_by_graph": agreement}
    )


def score_turns(model: QualityModel, encoder: Encoder, turns: Sequence[TurnToScore]) -> TurnHeads:
    """What the checkpoint gives for every turn."""
    warnings = [find_repeats(turn.context, turn.response) for turn in turns]
    return TurnHeads(score_heads(model, encoder, _texts_of(turns)), warnings)


def _texts_of(turns: Sequence[TurnToScore]) -> list[tuple[list[Spoken], str]]:
    said: list[list[Spoken]] = [
        [(each.speaker, each.text) for each in turn.context if each.text.strip()] for turn in turns
    ]
    return [(context, turn.response) for context, turn in zip(said, turns, strict=True)]


def serve_turns(scorer: QualityScorer, turns: Sequence[TurnToScore]) -> TurnHeads:
    """What the graph gives for them, in batches of like length as the service forms them."""
    packs = sorted(scorer.encode(turns), key=lambda pack: pack.width)
    heads = np.zeros((len(turns), len(HEADS)))
    warnings: list[Sequence[str]] = [()] * len(turns)
    for start in range(0, len(packs), PACKS_AT_ONCE):
        batch = packs[start : start + PACKS_AT_ONCE]
        for pack, found in zip(batch, scorer.compute_heads(batch), strict=True):
            [place] = pack.answers
            heads[place], warnings[place] = found, pack.warnings[0]
    return TurnHeads(heads, warnings)


def _check(
    variant: GraphVariant,
    scorer: QualityScorer,
    turns: Sequence[TurnToScore],
    expected: TurnHeads,
    formula: ValueFormula,
    tolerance: float,
) -> dict[str, float]:
    """The drift of the value, and the largest of each head. Raises ParityError, naming the head."""
    served = serve_turns(scorer, turns)
    drift = check_parity(variant, turns, served.values(formula), expected.values(formula), tolerance).to_dict()
    for place, name in enumerate(HEADS):
        try:
            found = check_parity(
                variant, turns, served.heads[:, place].tolist(), expected.heads[:, place].tolist(), tolerance
            )
        except ParityError as error:
            raise ParityError(f"{name}: {error}") from error
        drift[f"{name}_max_abs"] = round(found.max_abs, 7)
    return drift


def _agree(
    reference: QualityReference, formula: ValueFormula, score: Callable[[Sequence[TurnToScore]], TurnHeads]
) -> dict[str, JsonValue]:
    """By set, how the value agrees with people: Spearman, or the area under the ROC curve where they said yes or no."""
    agreement: dict[str, JsonValue] = {}
    for name, (turns, ratings) in reference.rated.items():
        measure = compute_auc if set(ratings) <= {0.0, 1.0} else compute_spearman
        agreement[name] = round(measure(score(turns).values(formula), ratings), 4)
    return agreement


def read_options(checkpoint: Path, model: QualityModel) -> QualityOptions:
    """The manifest's options: the layout that was trained, and the formula that lies beside the weights."""
    if not (checkpoint / VALUE_FILE).exists():
        raise CheckpointError(f"{checkpoint}: has no {VALUE_FILE}, which says how the heads become the value")
    formula = read_formula(checkpoint)
    value = {
        "weights": dict(formula.weights),
        "bias": formula.bias,
        "curve": formula.curve,
        "repeats": dict(formula.repeats),
    }
    return QualityOptions.model_validate({"layout": model.settings.layout, "value": value, "heads": HEADS_FILE})


def _start(job: QualityExport, model: QualityModel) -> Bundle:
    training = {**read_json(job.checkpoint / "training.json"), VALUE_FILE: read_formula(job.checkpoint).fitted_on}
    return start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=model.settings.layout.row_tokens,
        options=read_options(job.checkpoint, model).model_dump(mode="json"),
        training=training,
        agreement={"report": read_json(job.checkpoint / "report.json")},
        threshold=read_json(job.checkpoint / THRESHOLD_FILE) or None,
        licence=job.licence,
    )
