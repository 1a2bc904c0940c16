"""Exports a language model as a FED bundle: graphs, tokenizer, reference turns, manifest. Requires parity."""

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, JsonValue
from turnscore_assessment.data.dialogues import read_dialogues
from turnscore_assessment.figures import Floats, compute_spearman
from turnscore_assessment.files import check_row, read_document
from turnscore_core.batches import form_batches
from turnscore_core.scorers.fed.questions import (
    DialogueTokenizer,
    FedBundleOptions,
    FedQuestions,
    Join,
    Loss,
    Qualities,
    Quality,
)
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import GraphVariant

from turnscore_exporters.bundles import self_test, writer
from turnscore_exporters.errors import CheckpointError, ExporterError, ParityError
from turnscore_exporters.fed.model import FedCheckpoint, build_probe, export_graph, load_checkpoint
from turnscore_exporters.graphs.int8 import quantize_int8
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.options import FedExportOptions
from turnscore_exporters.training.loop import TRAINING_FILE

LOSSES: tuple[Loss, ...] = get_args(Loss)
IGNORED = -100  # specified: transformers leaves these labels out of the loss


def rate_published(
    checkpoint: FedCheckpoint, texts: Sequence[str], qualities: Mapping[str, Quality], join: Join
) -> dict[Loss, dict[str, float]]:
    """Each quality's value by each loss for the conversation `texts`, oldest turn first, the turn to score last."""
    follow_ups = {
        text: encode_turn(checkpoint, text, join, is_last=True)
        for quality in qualities.values()
        for text in (*quality.positive, *quality.negative)
    }
    context = [checkpoint.eos_id]
    for text in texts:
        context += [*encode_turn(checkpoint, text, join, is_last=False), checkpoint.eos_id]
    context = cut_context(context, checkpoint.window - max(map(len, follow_ups.values())), checkpoint.eos_id)
    found = {text: measure_losses(checkpoint, context, tokens) for text, tokens in follow_ups.items()}
    return {
        loss: {
            name: _mean([found[text][loss] for text in quality.negative])
            - _mean([found[text][loss] for text in quality.positive])
            for name, quality in qualities.items()
        }
        for loss in LOSSES
    }


def encode_turn(checkpoint: FedCheckpoint, text: str, join: Join, *, is_last: bool) -> list[int]:
    """A turn's tokens with its separators."""
    spaced = f" {text}" if is_last else f" {text} "
    piece = text.strip() if join == "stripped" else spaced
    ids: list[int] = checkpoint.tokenizer.encode(piece, add_special_tokens=False).ids
    return ids


def cut_context(context: list[int], room: int, eos_id: int) -> list[int]:
    """The last `room` tokens, the first replaced by the separator."""
    if len(context) <= room:
        return context
    kept = context[-room:]
    return kept if kept[0] == eos_id else [eos_id, *kept[1:]]


def measure_losses(checkpoint: FedCheckpoint, context: Sequence[int], follow_up: Sequence[int]) -> dict[Loss, float]:
    """transformers' mean loss of the follow-up after the context, and of both together, from one forward pass."""
    ids = torch.tensor([[*context, *follow_up]])
    labels = ids.clone()
    labels[:, : len(context)] = IGNORED
    model = checkpoint.model
    with torch.inference_mode():
        whole = model(input_ids=ids, labels=ids)
        response = model.loss_function(whole.logits, labels, vocab_size=model.config.vocab_size)
    return {"whole_sequence": float(whole.loss), "response_only": float(response)}


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses) if losses else 0.0


def rate_verified_turns(checkpoint: FedCheckpoint, options: FedBundleOptions) -> dict[Loss, Floats]:
    """Values [turns, qualities] of the verified turns, computed the published way."""
    rated = [rate_published(checkpoint, texts, options.qualities, options.join) for texts in self_test.FED_VERIFIED]
    return {loss: np.array([list(each[loss].values()) for each in rated]) for loss in LOSSES}


def verify_published(
    published: dict[Loss, Floats], scorer: FedScorer, options: FedBundleOptions, tolerance: float
) -> dict[Loss, float]:
    """The largest difference of any quality from the published way, by loss; ParityError where it is too large.

    The published computation runs one forward pass for each follow-up with transformers' own loss. It is slow on
    purpose: the one pass must agree with it, so it uses nothing of the one pass.
    """
    worst: dict[Loss, float] = {}
    for loss, served in serve_both_losses(scorer, self_test.FED_VERIFIED, options).items():
        differences = np.abs(served - published[loss])
        worst[loss] = float(differences.max())
        if not worst[loss] <= tolerance:
            turn, quality = np.unravel_index(differences.argmax(), differences.shape)
            raise ParityError(
                f"{list(options.qualities)[quality]} ({loss}) after {self_test.FED_VERIFIED[turn][-1]!r} differs "
                f"from the published way by {worst[loss]:.2e}; the tolerance is {tolerance:.0e}"
            )
    return worst


def serve_both_losses(
    scorer: FedScorer, conversations: Sequence[Sequence[str]], options: FedBundleOptions
) -> dict[Loss, Floats]:
    """Values [turns, qualities] of all of the bundle's qualities, in its order, by each loss."""
    question = scorer.read_options({"qualities": list(options.qualities), "loss": "whole_sequence"})
    packs = scorer.encode([self_test.build_turn(texts, question) for texts in conversations])
    values: dict[Loss, Floats] = {loss: np.zeros((len(conversations), len(options.qualities))) for loss in LOSSES}
    for batch in form_batches(packs):
        places = [place for pack in batch for place in pack.answers]
        for place, found in zip(places, scorer.compute_losses(batch), strict=True):
            for loss in LOSSES:
                values[loss][place] = found.rate(loss)
    return values


def mean_values(values: Floats, options: FedBundleOptions) -> Floats:
    """The turns' values on the bundle's default question."""
    places = [list(options.qualities).index(name) for name in options.default_qualities]
    mean: Floats = values[:, places].mean(1)
    return mean


def write_reference(file: Path, values: Mapping[Loss, Floats]) -> None:
    """Writes the reference turns' values of every loss, which give percentiles for any choice of qualities."""
    arrays: dict[str, Any] = {loss: each.astype(np.float32) for loss, each in values.items()}
    np.savez_compressed(file, **arrays)


PUBLISHED_FILE = Path(__file__).with_name("qualities.json")


class QualityFile(BaseModel):
    """Qualities, and named sets of them; without a set `fed`, all are asked by default."""

    model_config = ConfigDict(extra="forbid")

    qualities: Qualities
    sets: dict[str, list[str]] = {}

    @property
    def default(self) -> list[str]:
        """The qualities that a bundle asks where a request names none."""
        return self.sets.get("fed") or list(self.qualities)


def read_qualities(path: Path = PUBLISHED_FILE) -> QualityFile:
    """Reads a file `{"qualities": {NAME: {"positive": [...], "negative": [...]}}}`; BadFileError where it is wrong."""
    return check_row(QualityFile.model_validate, path, 0, read_document(path))


KIND = "fed"
FP32: GraphVariant = "fp32"
PRECISIONS: dict[GraphVariant, str] = {
    "fp32": "fp32",
    "cpu-int8": "int8 weights and activations, a scale per token; losses fp32",
    "cuda-fp16": "fp16 matmuls, attention fused; residuals, norms, softmax and losses fp32",
}
# Nats. fp32 differs by rounding alone; the others are chosen from what was measured, see docs/models/fed.md.
TOLERANCES: dict[GraphVariant, float] = {"fp32": writer.FP32_TOLERANCE, "cpu-int8": 0.1, "cuda-fp16": 0.01}
REFERENCE_FILE = "reference.npz"
MIN_REFERENCE_TURNS = 100


@dataclass(frozen=True, kw_only=True)
class FedExport:
    """What to export, what its bundle asks, and what else was asked for."""

    checkpoint: FedCheckpoint
    options: FedBundleOptions
    reference: Sequence[Sequence[str]]
    asked: FedExportOptions


def export_fed(job: FedExport, output: Path) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    The fp32 graph is compared with the published computation, the others with the fp32 graph on the reference turns.
    Raises ParityError where one disagrees, CheckpointError where a follow-up does not fit the window, ExporterError for
    too few reference turns; the folder is then removed.
    """
    with writer.fresh_folder(output, len(job.reference), MIN_REFERENCE_TURNS):
        kept = writer.choose_graphs(job.asked.graph, TOLERANCES["cpu-int8"]).kept
        variants = [FP32, *(each for each in kept if each != FP32)]
        output.mkdir(parents=True, exist_ok=True)
        job.checkpoint.tokenizer.save(str(output / writer.TOKENIZER_FILE), pretty=False)
        _check_window(job, output / writer.TOKENIZER_FILE)
        export_graph(job.checkpoint.model, output / writer.GRAPH_FILES[FP32])
        if "cpu-int8" in variants:
            probe = build_probe(int(job.checkpoint.model.config.vocab_size))
            quantize_int8(output / writer.GRAPH_FILES[FP32], output / writer.GRAPH_FILES["cpu-int8"], probe)
        if "cuda-fp16" in variants:
            export_graph(job.checkpoint.model, output / writer.GRAPH_FILES["cuda-fp16"], torch.float16, is_fused=True)
        rated = rate_verified_turns(job.checkpoint, job.options)
        tested = self_test.self_test_turns(KIND)  # the verified ones come first
        values = mean_values(rated[job.options.loss], job.options).tolist()
        values += [None] * (len(tested) - len(values))
        write_json(output / writer.SELF_TEST_FILE, self_test.build_self_test(tested, values))
        # The reference needs a scorer, and a scorer needs a reference: it starts with one of zeros.
        _write_reference(output, {loss: np.zeros((1, len(job.options.qualities))) for loss in LOSSES}, job)
        bundle = _start(job, variants, output)
        published = verify_published(rated, _scorer(bundle, FP32), job.options, TOLERANCES[FP32])
        expected = serve_both_losses(_scorer(bundle, FP32), job.reference, job.options)
        _write_reference(output, expected, job)
        measured = {FP32: {f"published_{loss}": worst for loss, worst in published.items()}}
        for variant in variants[1:]:
            measured[variant] = _examine(bundle, variant, job, expected)
        return writer.finish_bundle(bundle, measured, kept, {})


def _check_window(job: FedExport, tokenizer: Path) -> None:
    """Raises CheckpointError, before any work, where the service would refuse the window."""
    name, window = job.checkpoint.name, job.checkpoint.window
    try:
        FedQuestions(DialogueTokenizer(tokenizer, job.options.eos_id, job.options.join), job.options, window)
    except RuntimeError as error:
        raise CheckpointError(f"{name}: its {window} positions are too few: {error}") from error


def _scorer(bundle: Bundle, variant: GraphVariant) -> FedScorer:
    return FedScorer(bundle, self_test.open_examined(bundle, variant, threads=torch.get_num_threads()))


def _examine(
    bundle: Bundle, variant: GraphVariant, job: FedExport, expected: Mapping[Loss, Floats]
) -> dict[str, float]:
    """The drift of the default value, by the default loss, from the fp32 graph's, and that of the worst quality."""
    served = serve_both_losses(_scorer(bundle, variant), job.reference, job.options)[job.options.loss]
    wanted = expected[job.options.loss]
    values, wanted_values = (mean_values(each, job.options).tolist() for each in (served, wanted))
    turns = list(map(self_test.build_turn, job.reference))
    drift = writer.check_parity(variant, turns, values, wanted_values, TOLERANCES[variant])
    by_quality = [compute_spearman(own.tolist(), other.tolist()) for own, other in zip(served.T, wanted.T, strict=True)]
    return {
        **drift.to_dict(),
        "quality_max_abs": round(float(np.abs(served - wanted).max()), 6),
        "quality_min_spearman": round(min(by_quality), 6),
    }


def read_reference(files: Sequence[Path], limit: int) -> list[tuple[str, ...]]:
    """Draws at most `limit` system turns with their whole contexts, equally many from each file, without repeats.

    Where a file names no speakers, every second turn counts as the system's.
    """
    drawn: list[tuple[str, ...]] = []
    generator = random.Random(0)  # noqa: S311
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


def _write_reference(output: Path, values: Mapping[Loss, Floats], job: FedExport) -> None:
    """The values of every loss for percentiles, and the calibration curve of the default question."""
    write_reference(output / REFERENCE_FILE, values)
    defaults = mean_values(values[job.options.loss], job.options)
    source = f"system turns of {', '.join(path.name for path in job.asked.dialogues or ())}"
    write_json(output / writer.CALIBRATION_FILE, writer.calibrate(defaults.tolist(), source))


def _start(job: FedExport, variants: Sequence[GraphVariant], output: Path) -> Bundle:
    options: dict[str, JsonValue] = job.options.model_dump(mode="json", exclude={"own_qualities"})
    return writer.start_bundle(
        output,
        KIND,
        job.asked.version,
        {variant: (PRECISIONS[variant], TOLERANCES[variant]) for variant in variants},
        token_limit=job.checkpoint.window,
        options=options,
        # The training record of `turnscore train dialogue-lm`; other checkpoints have none.
        training=read_json(Path(job.checkpoint.name) / TRAINING_FILE) or {"checkpoint": Path(job.checkpoint.name).name},
        agreement={},
        licence=job.asked.licence,
        stand_in=job.asked.stand_in,
    )


# A verification does not use the percentiles: these stand in for real turns.
STAND_IN_TURNS = tuple((f"hi, this is number {number}", "ok.") for number in range(MIN_REFERENCE_TURNS))


def run_fed_export(options: FedExportOptions) -> Iterator[str]:
    """Exports the bundle and says the measured parity; a verification keeps nothing."""
    if options.verify:
        with tempfile.TemporaryDirectory() as folder:
            yield from _report(export_fed(_describe(options, STAND_IN_TURNS), Path(folder) / "bundle"))
        return
    if options.output is None or not options.dialogues:
        raise ExporterError("give --output and --dialogues, or --verify; see docs/models/fed.md")
    bundle = export_fed(_describe(options, read_reference(options.dialogues, options.turns)), options.output)
    yield from _report(bundle)
    yield f"{bundle.manifest.reference} written to {options.output}"


def _describe(options: FedExportOptions, reference: Sequence[Sequence[str]]) -> FedExport:
    checkpoint, known = load_checkpoint(options.checkpoint), read_qualities(options.qualities or PUBLISHED_FILE)
    asked = FedBundleOptions(
        qualities=known.qualities,
        default_qualities=tuple(known.default),
        loss=options.loss,
        join=options.join,
        eos_id=checkpoint.eos_id,
        reference=REFERENCE_FILE,
    )
    return FedExport(checkpoint=checkpoint, options=asked, reference=reference, asked=options)


def _report(bundle: Bundle) -> Iterator[str]:
    for variant, spec in bundle.manifest.graphs.items():
        figures = ", ".join(f"{name} {value:.3g}" for name, value in spec.parity_measured.items())
        yield f"{variant} (tolerance {TOLERANCES[variant]} nats): {figures}"
