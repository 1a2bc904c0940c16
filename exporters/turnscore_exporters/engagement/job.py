"""One training run of the engagement classifier, as the command asks for it."""

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
import typer
from turnscore_assessment.data.dialogue_sets import is_sample

from turnscore_exporters.data.convai import Labels, Split, check_published_counts, count_labels
from turnscore_exporters.engagement.data import EngagementData, EngagementPaths, read_engagement_data
from turnscore_exporters.engagement.model import EngagementModel, Pooling, save_model
from turnscore_exporters.engagement.recipes import (
    MixedRecipe,
    PaperRecipe,
    train_mixed_recipe,
    train_paper_recipe,
)
from turnscore_exporters.engagement.report import (
    list_test_sets,
    report_baselines,
    report_model,
    report_transfer,
)
from turnscore_exporters.engagement.training import TextVectors
from turnscore_exporters.json_files import write_json
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_exporters.training.runs import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder, parse_choice

BOOTSTRAP_ROUNDS = 1000
MIXED_LABELS = "heads: contrast text, corrected, thumbs, published; blend: transfer pairs"


class Recipe(StrEnum):
    """How to train; see docs/models/engagement.md."""

    PAPER = "paper"
    MIXED = "mixed"


@dataclass(frozen=True, kw_only=True)
class EngagementJob:
    """The command's options."""

    data: Path
    output: Path
    encoder: str
    recipe: str
    labels: str
    pooling: str
    is_fine_tuned: bool
    with_transfer: bool
    steps: int | None
    seed: int
    threads: int
    check_counts: bool


def run_engagement_job(job: EngagementJob) -> None:
    """Trains; writes checkpoint, `training.json` and `report.json` to the output folder; prints the main figures."""
    recipe = parse_choice(Recipe, job.recipe, "recipe")
    if job.threads:
        torch.set_num_threads(job.threads)
    claim_folder(job.output, job.data)
    paths = EngagementPaths.in_folder(job.data)
    data = read_engagement_data(paths, check_counts=job.check_counts)
    print_counts(data, checked=job.check_counts and not is_sample(job.data))
    train = _train_mixed if recipe is Recipe.MIXED else _train_paper
    model, encoder, vectors = train(job, data, paths)
    save_model(model, encoder, job.output)
    test_sets = list_test_sets(data)
    baselines = report_baselines(test_sets, BOOTSTRAP_ROUNDS)
    report = report_model(model, vectors, test_sets, BOOTSTRAP_ROUNDS)
    if recipe is Recipe.MIXED:
        report["transfer_cross_validated"] = report_transfer(model, vectors, data.transfer, BOOTSTRAP_ROUNDS)
    lengths = {name: {kind: each.to_dict() for kind, each in kinds.items()} for name, kinds in baselines.items()}
    write_json(job.output / REPORT_FILE, {"model": report, "length": lengths})
    write_json(job.output / TRAINING_FILE, _describe(job))
    for test_set in test_sets:
        figures, length = report[test_set.name], baselines[test_set.name]["characters"]
        typer.echo(f"{test_set.name}: AUC {figures['auc']['value']:.3f} (characters alone {length.auc.value:.3f})")


def _train_mixed(
    job: EngagementJob, data: EngagementData, paths: EngagementPaths
) -> tuple[EngagementModel, Encoder, TextVectors]:
    recipe = MixedRecipe(pooling=parse_choice(Pooling, job.pooling, "pooling"))
    if job.steps is not None:
        recipe = replace(recipe, adaptation_steps=job.steps)
    return train_mixed_recipe(data, paths.text, job.encoder, recipe, job.seed, job.output / STATE_FOLDER)


def _train_paper(
    job: EngagementJob, data: EngagementData, _paths: EngagementPaths
) -> tuple[EngagementModel, Encoder, TextVectors]:
    recipe = PaperRecipe(
        labels=parse_choice(Labels, job.labels, "labels"),
        pooling=parse_choice(Pooling, job.pooling, "pooling"),
        is_fine_tuned=job.is_fine_tuned,
        with_transfer=job.with_transfer,
        fine_tune_steps=job.steps,
    )
    encoder = load_encoder(job.encoder)
    model = train_paper_recipe(data, encoder, recipe, job.seed, job.output / STATE_FOLDER)
    return model, encoder, TextVectors(model, encoder)


def _describe(job: EngagementJob) -> dict[str, Any]:
    """The manifest's description of the training; file names only, since folders differ between machines."""
    paths = EngagementPaths.in_folder(Path("DATA"))
    return {
        "recipe": job.recipe,
        "encoder": job.encoder,
        "labels": job.labels if job.recipe == Recipe.PAPER else MIXED_LABELS,
        "pooling": job.pooling,
        "seed": job.seed,
        "data": [paths.convai.name, paths.transfer_train.name, paths.transfer_validation.name, paths.text.name],
        "command": f"turnscore train engagement --data DATA --output CHECKPOINT --encoder {job.encoder} "
        f"--recipe {job.recipe} --pooling {job.pooling} --seed {job.seed}",
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def print_counts(data: EngagementData, *, checked: bool = True) -> None:
    """Prints the pairs per label and split of both readings; checks the published ones if asked."""
    if checked:
        check_published_counts(data.convai)
    for labels in Labels:
        counts = {split: count_labels(data.convai.pairs[labels][split]) for split in Split}
        shares = ", ".join(f"{split} {zeros}/{ones}" for split, (zeros, ones) in counts.items())
        note = " (as published)" if checked and labels is Labels.PUBLISHED else ""
        typer.echo(f"{labels} labels, pairs with label 0/1: {shares}{note}")
