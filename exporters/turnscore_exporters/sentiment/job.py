"""One training run of the sentiment/stop model, as the command asks for it."""

import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import typer
from turnscore_assessment.data.dialogue_sets import DEFAULT_SETS, DialogueSet, read_sets, read_turns

from turnscore_exporters.json_files import write_json
from turnscore_exporters.sentiment.model import ModelSettings, save_model
from turnscore_exporters.sentiment.report import (
    compare_labellings,
    count_labels,
    count_short_answers,
    measure_development,
    read_judged_responses,
    render_table,
)
from turnscore_exporters.sentiment.training import SentimentRecipe, train_model
from turnscore_exporters.training.encoders import load_long_encoder
from turnscore_exporters.training.runs import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder

DEVELOPMENT_FILE, DEVELOPMENT_FORM = "dbdc3_dev.jsonl.gz", "dbdc3"
"""Judged turns to measure on, where the data folder has them. Never trained on."""


@dataclass(frozen=True, kw_only=True)
class SentimentJob:
    """The command's options."""

    data: Path
    output: Path
    settings: ModelSettings
    recipe: SentimentRecipe = field(default_factory=SentimentRecipe)
    sets: Path = DEFAULT_SETS
    steps: int | None = None
    seed: int = 0
    threads: int = 0


def run_sentiment_job(job: SentimentJob) -> None:
    """Trains; writes checkpoint, `training.json` and `report.json` to the output folder; prints the main figures."""
    if job.threads:
        torch.set_num_threads(job.threads)
    claim_folder(job.output, job.data)
    sets = read_sets(job.sets)
    by_set = read_turns(job.data, sets, job.seed)
    report: dict[str, Any] = {
        "labels": {name: count_labels(turns, job.recipe.labels) for name, turns in by_set.items()},
        "short_answers": {name: count_short_answers(turns) for name, turns in by_set.items()},
    }
    typer.echo(render_table(report["labels"], "set"))
    typer.echo(render_table(report["short_answers"], "set"))
    encoder = load_long_encoder(job.settings.encoder, job.settings.token_limit)
    turns = [turn for members in by_set.values() for turn in members]
    model, rows = train_model(
        turns, encoder, job.settings, job.recipe, job.seed, job.steps, job.output / STATE_FOLDER / "sentiment_stop.pt"
    )
    save_model(model, encoder, job.output)
    report["hostile_utterances"] = len(rows.bad_responses.insults)
    if (job.data / DEVELOPMENT_FILE).exists():
        judged = read_judged_responses(job.data / DEVELOPMENT_FILE, DEVELOPMENT_FORM)
        report["labels_against_people"] = compare_labellings(judged)
        report["development"] = measure_development(model, encoder, judged)
        typer.echo(render_table(report["labels_against_people"], "label of the next utterance"))
        typer.echo(render_table(report["development"], DEVELOPMENT_FILE))
    write_json(job.output / REPORT_FILE, report)
    write_json(job.output / TRAINING_FILE, describe_training(job, sets))


def describe_training(job: SentimentJob, sets: list[DialogueSet]) -> dict[str, Any]:
    """The manifest's description of the training; file names only, since folders differ between machines."""
    settings, recipe = job.settings, job.recipe
    return {
        "encoder": settings.encoder,
        "target": settings.target,
        "pooling": settings.pooling,
        "recipe": asdict(recipe),
        "seed": job.seed,
        "data": {each.name: {"files": each.files, "goes_on": each.goes_on} for each in sets},
        "command": f"turnscore train sentiment-stop --data DATA --output CHECKPOINT --encoder {settings.encoder} "
        f"--target {settings.target} --seed {job.seed}",
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
