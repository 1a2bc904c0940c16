"""An engagement training from data to report: models' agreement with people, next to that of the response's length."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer
from turnscore_assessment.data.dialogues import is_sample
from turnscore_assessment.figures import BinaryAgreement, bootstrap, compute_auc, find_best_threshold, measure_agreement

from turnscore_exporters.data.pairs import (
    CONVAI_FILE,
    TEXT_FILE,
    TRANSFER_FILES,
    ConvaiSplit,
    EngagementData,
    Labels,
    TextPair,
    check_published_counts,
    count_labels,
    read_engagement_data,
)
from turnscore_exporters.engagement.model import EngagementModel, cross_validate_blend
from turnscore_exporters.engagement.training import (
    MixedRecipe,
    PairVectors,
    PaperRecipe,
    labels_of,
    texts_of,
    train_mixed_recipe,
    train_paper_recipe,
)
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import EngagementTrainOptions
from turnscore_exporters.training.encoders import load_encoder, save_model
from turnscore_exporters.training.loop import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder, describe_run


@dataclass(frozen=True)
class TestSet:
    """Pairs that people judged and that no model trains on."""

    name: str
    pairs: Sequence[TextPair]
    validation: Sequence[TextPair]

    @property
    def labels(self) -> list[int]:
        return [int(pair.label) for pair in self.pairs]


def list_test_sets(data: EngagementData) -> list[TestSet]:
    """The ConvAI test pairs under both readings, the pairs judged by AMT raters, and ConvAI's thumbs.

    `validation` sets the length baseline's threshold; the judged pairs have none of their own and take the corrected
    reading's.
    """
    published, corrected = (data.convai.pairs[labels] for labels in (Labels.PUBLISHED, Labels.CORRECTED))
    splits = {"published": published, "corrected": corrected, "thumbs": data.convai.thumbs}
    sets = {name: TestSet(name, of[ConvaiSplit.TEST], of[ConvaiSplit.VALIDATION]) for name, of in splits.items()}
    judged = TestSet("judged", data.judged, sets["corrected"].validation)
    return [sets["published"], sets["corrected"], judged, sets["thumbs"]]


def measure_lengths(pairs: Sequence[TextPair]) -> dict[str, list[float]]:
    """The characters and words of each reply."""
    return {
        "characters": [float(len(pair.reply)) for pair in pairs],
        "words": [float(len(pair.reply.split())) for pair in pairs],
    }


def report_baselines(test_sets: Sequence[TestSet], rounds: int) -> dict[str, dict[str, BinaryAgreement]]:
    """Agreement of the reply's length alone, on each test set, with the validation pairs' best threshold."""
    report: dict[str, dict[str, BinaryAgreement]] = {}
    for test_set in test_sets:
        validation = measure_lengths(test_set.validation)
        labels = [pair.label for pair in test_set.validation]
        report[test_set.name] = {
            kind: measure_agreement(lengths, test_set.labels, find_best_threshold(validation[kind], labels), rounds)
            for kind, lengths in measure_lengths(test_set.pairs).items()
        }
    return report


def report_model(
    model: EngagementModel, vectors: PairVectors, test_sets: Sequence[TestSet], rounds: int
) -> dict[str, Any]:
    """One model's agreement on each test set."""
    report: dict[str, Any] = {}
    for test_set in test_sets:
        scores = model.probability(vectors.features(texts_of(test_set.pairs))).detach().tolist()
        report[test_set.name] = asdict(measure_agreement(scores, test_set.labels, rounds=rounds))
    return report


def report_transfer(
    model: EngagementModel, vectors: PairVectors, pairs: Sequence[TextPair], rounds: int
) -> dict[str, Any]:
    """Agreement on the transfer pairs, each scored by a blend that did not see it, and that of the lengths alone."""
    odds = cross_validate_blend(model, vectors.features(texts_of(pairs)), labels_of(pairs))
    labels = [pair.label for pair in pairs]
    return {
        "pairs": len(pairs),
        "auc": asdict(bootstrap(compute_auc, odds, labels, rounds)),
        "auc_of_length": {
            kind: asdict(bootstrap(compute_auc, length, labels, rounds))
            for kind, length in measure_lengths(pairs).items()
        },
    }


BOOTSTRAP_ROUNDS = 1000
MIXED_LABELS = "heads: contrast text, corrected, thumbs, published; blend: transfer pairs"


def run_engagement_training(options: EngagementTrainOptions) -> None:
    """Trains; writes checkpoint, `training.json` and `report.json` to the output folder; prints the main figures."""
    claim_folder(options.output, options.data)
    data = read_engagement_data(options.data, check_counts=not options.any_counts)
    print_counts(data, checked=not options.any_counts and not is_sample(options.data))
    pooling, state = options.pooling, options.output / STATE_FOLDER
    if options.recipe == "mixed":
        recipe = MixedRecipe(pooling=pooling)
        if options.steps is not None:
            recipe = replace(recipe, adaptation_steps=options.steps)
        text = options.data / TEXT_FILE
        model, encoder, vectors = train_mixed_recipe(data, text, options.encoder, recipe, options.seed, state)
    else:
        encoder = load_encoder(options.encoder)
        paper = PaperRecipe(labels=Labels(options.labels), pooling=pooling, with_transfer=options.transfer)
        model, vectors = train_paper_recipe(data, encoder, paper, options.seed, state)
    save_model(model, encoder, options.output)
    test_sets = list_test_sets(data)
    baselines = report_baselines(test_sets, BOOTSTRAP_ROUNDS)
    report = report_model(model, vectors, test_sets, BOOTSTRAP_ROUNDS)
    if options.recipe == "mixed":
        report["transfer_cross_validated"] = report_transfer(model, vectors, data.transfer, BOOTSTRAP_ROUNDS)
    lengths = {name: {kind: asdict(each) for kind, each in kinds.items()} for name, kinds in baselines.items()}
    write_json(options.output / REPORT_FILE, {"model": report, "length": lengths})
    write_json(options.output / TRAINING_FILE, _describe(options, encoder.name))
    for test_set in test_sets:
        figures, length = report[test_set.name], baselines[test_set.name]["characters"]
        typer.echo(f"{test_set.name}: AUC {figures['auc']['value']:.3f} (length in characters {length.auc.value:.3f})")


def _describe(options: EngagementTrainOptions, encoder: str) -> dict[str, Any]:
    """The manifest's description of the training; file names only, since folders differ between machines."""
    return describe_run(
        f"turnscore train engagement --data DATA --output CHECKPOINT --encoder {encoder} "
        f"--recipe {options.recipe} --pooling {options.pooling} --seed {options.seed}",
        recipe=options.recipe,
        encoder=encoder,
        labels=options.labels if options.recipe == "paper" else MIXED_LABELS,
        pooling=options.pooling,
        seed=options.seed,
        data=[Path(each).name for each in (CONVAI_FILE, *TRANSFER_FILES, TEXT_FILE)],
    )


def print_counts(data: EngagementData, *, checked: bool = True) -> None:
    """Prints the pairs per label and split of both readings; checks the published ones if asked."""
    if checked:
        check_published_counts(data.convai)
    for labels in Labels:
        counts = {split: count_labels(data.convai.pairs[labels][split]) for split in ConvaiSplit}
        shares = ", ".join(f"{split} {zeros}/{ones}" for split, (zeros, ones) in counts.items())
        note = " (as published)" if checked and labels is Labels.PUBLISHED else ""
        typer.echo(f"{labels} labels, pairs with label 0/1: {shares}{note}")
