"""One training run of the quality model: prepare, learn, drop what fits after all, learn on, average, fit to people."""

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import typer

from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.quality.development import measure_development
from turnscore_exporters.quality.finish import average_models, balance_relevant, fit_formula, fit_overall
from turnscore_exporters.quality.fit_filter import drop_fitting
from turnscore_exporters.quality.model import (
    QualityModel,
    QualitySettings,
    RowBuilder,
    load_model,
    save_model,
)
from turnscore_exporters.quality.preparation import (
    Preparation,
    prepare_dailydialog,
    prepare_groups,
    read_groups,
    read_spoken_turns,
)
from turnscore_exporters.quality.rated_training import read_fitted_turns
from turnscore_exporters.quality.rounded.lessons import RoundingRecipe, learn_rounding
from turnscore_exporters.quality.taught.lessons import TeacherRecipe, learn_from_teacher
from turnscore_exporters.quality.taught.teacher import load_sentence_teacher, read_or_embed
from turnscore_exporters.quality.taught.turns import choose_turns, list_texts
from turnscore_exporters.quality.training import QualityRecipe, form_batches, new_model, train_model
from turnscore_exporters.quality.value import write_formula
from turnscore_exporters.training.checkpoint_files import Factors, read_smoothing, write_smoothing
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_exporters.training.runs import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder

LEARNED_LAST = ("sentence_teacher", "int8_rounding")
"""What training.json says of the lessons after the training on groups."""


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """A larger sentence encoder to learn from at last, and the turns that it is asked about."""

    teacher: str
    """Its folder or hub name."""
    preparation: Preparation
    recipe: TeacherRecipe = field(default_factory=TeacherRecipe)


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """A training with the int8 rounding in it at last, and the turns that it reads."""

    preparation: Preparation
    recipe: RoundingRecipe = field(default_factory=RoundingRecipe)


@dataclass(frozen=True, kw_only=True)
class QualityJob:
    """What the command line says."""

    data: Path
    output: Path
    settings: QualitySettings
    recipe: QualityRecipe = field(default_factory=QualityRecipe)
    preparation: Preparation = field(default_factory=Preparation)
    with_dailydialog: bool = False
    teaching: Teaching | None = None
    rounding: Rounding | None = None
    start: tuple[Path, ...] = ()
    """Checkpoints whose average stands in place of the training: nothing but the fit to people is done anew."""
    seed: int = 0
    threads: int = 0


def run_quality_job(job: QualityJob) -> None:
    """Trains, writes checkpoint, `value.json`, `training.json` and `report.json` to the output folder.

    Each part's model stays in the state folder: an interrupted run goes on where it stopped.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    if job.teaching or job.rounding or not job.start:
        claim_folder(job.output, job.data)
    model, encoder = average_checkpoints(job) if job.start else learn_parts(job, _prepare(job))
    taught = learn_taught(job, job.teaching, model, encoder) if job.teaching else None
    smoothing = learn_to_be_rounded(job, job.rounding, model, encoder) if job.rounding else kept_smoothing(job)
    fitted = read_fitted_turns(job.data, with_dailydialog=job.with_dailydialog)
    overall = fit_overall(model, encoder, fitted)
    save_model(model, encoder, job.output)
    write_smoothing(job.output, smoothing)
    formula = fit_formula(model, encoder, fitted, overall)
    write_formula(job.output, formula)
    training = describe_fit(job) if job.start else describe_training(job)
    learned = {"sentence_teacher": taught} if taught else {}
    rounded = {"int8_rounding": asdict(job.rounding.recipe)} if job.rounding else {}
    write_json(job.output / TRAINING_FILE, training | learned | rounded)
    write_json(job.output / REPORT_FILE, measure_development(model, encoder, formula, job.data))


def _prepare(job: QualityJob) -> list[Path]:
    state = job.output / STATE_FOLDER
    files = prepare_groups(job.data, state, job.preparation)
    return [*files, prepare_dailydialog(job.data, state, job.preparation)] if job.with_dailydialog else files


def learn_taught(job: QualityJob, teaching: Teaching, model: QualityModel, encoder: Encoder) -> dict[str, Any]:
    """Teaches the model in place what the larger encoder finds alike; returns what the manifest says of it."""
    state = job.output / STATE_FOLDER
    people, bots = read_spoken_turns(job.data, teaching.preparation)
    turns = choose_turns(people, bots, teaching.preparation.seed)
    texts = list_texts(turns)
    vectors = read_or_embed(load_sentence_teacher(teaching.teacher), texts, state / "teacher")
    typer.echo(f"teacher: {len(turns)} turns, {len(texts)} texts")
    place = state / "taught.pt"
    wanted = learn_from_teacher(model, encoder, turns, people, vectors, teaching.recipe, place, job.seed)
    return {
        "teacher": Path(teaching.teacher).name,
        "turns": len(turns),
        "ratio": round(wanted.ratio, 3),
        "offset": round(wanted.offset, 3),
        "recipe": asdict(teaching.recipe),
    }


def learn_to_be_rounded(job: QualityJob, rounding: Rounding, model: QualityModel, encoder: Encoder) -> Factors:
    """Trains the model in place until its int8 form answers as it did; returns the factors to export with."""
    people, bots = read_spoken_turns(job.data, rounding.preparation)
    turns = choose_turns(people, bots, rounding.preparation.seed)
    place = job.output / STATE_FOLDER / "rounded.pt"
    return learn_rounding(model, encoder, turns, people, rounding.recipe, place, job.seed)


def kept_smoothing(job: QualityJob) -> Factors | None:
    """The factors of the one checkpoint whose encoder stays as it is."""
    return read_smoothing(job.start[0]) if len(job.start) == 1 and not job.teaching else None


def average_checkpoints(job: QualityJob) -> tuple[QualityModel, Encoder]:
    """The average of finished checkpoints of one start, reading rows as the job's layout says."""
    loaded = [load_model(folder) for folder in job.start]
    _, encoder = loaded[0]
    model = average_models([each for each, _ in loaded])
    model.settings = replace(model.settings, layout=job.settings.layout)
    return model, encoder


def learn_parts(job: QualityJob, files: Sequence[Path]) -> tuple[QualityModel, Encoder]:
    """The average of the models after each file of groups, learned one after the other; not yet fitted to people."""
    torch.manual_seed(job.seed)
    encoder = load_encoder(job.settings.encoder, job.settings.layout.row_tokens)
    model = new_model(encoder, job.settings)
    for part, file in enumerate(files):
        model, encoder = _learn(job, model, encoder, file, f"part{part}", filtered=part > 0)
    state = job.output / STATE_FOLDER
    model = average_models([load_model(state / f"part{part}")[0] for part in range(len(files))])
    balance_relevant(model, job.preparation.recipe.negatives)
    return model, encoder


def _learn(
    job: QualityJob,
    model: QualityModel,
    encoder: Encoder,
    file: Path,
    name: str,
    *,
    filtered: bool = False,
) -> tuple[QualityModel, Encoder]:
    """The model after one part of the training; read from the state folder where it was finished before."""
    folder = job.output / STATE_FOLDER / name
    if (folder / "weights.pt").exists():
        return load_model(folder)
    groups = read_groups(file)
    if filtered:
        groups, dropped = drop_fitting(groups, model, encoder)
        typer.echo(f"{name}: {dropped} made-up responses that fit were dropped")
    recipe = job.recipe
    generator = random.Random(f"{name} {job.seed}")  # noqa: S311
    batches = form_batches(groups, RowBuilder(encoder, job.settings.layout), recipe.batch_tokens, generator)
    typer.echo(f"{name}: {len(groups)} groups, {sum(len(each.pairs) for each in batches)} pairs, {len(batches)} steps")
    key = f"quality {name} {job.settings} {recipe} {job.seed} {len(batches)}"
    train_model(batches, model, recipe, key, folder / "state.pt", job.seed)
    save_model(model, encoder, folder)
    return model, encoder


def describe_fit(job: QualityJob) -> dict[str, Any]:
    """What is said of the first checkpoint's training, and that its heads were fitted to people anew."""
    layout = job.settings.layout
    again = {
        "checkpoints": [folder.name for folder in job.start],
        "with_dailydialog": job.with_dailydialog,
        "command": f"turnscore-train quality --data DATA --output CHECKPOINT --context-turns {layout.context_turns}"
        + " --start START" * len(job.start)
        + _taught_options(job),
        "date": datetime.now(UTC).date().isoformat(),
    }
    described = [read_json(folder / TRAINING_FILE) for folder in job.start]
    lost = {"int8_rounding"} if kept_smoothing(job) is None else set()  # the weights are on no grid any longer
    kept = [{key: each[key] for key in each if key not in lost} for each in described]
    first = kept[0] | {key: each[key] for each in kept for key in each if key in LEARNED_LAST}
    return {**first, "layout": layout.model_dump(), "fitted_again": again}


def _taught_options(job: QualityJob) -> str:
    return (" --sentence-teacher TEACHER" if job.teaching else "") + (" --with-int8" if job.rounding else "")


def describe_training(job: QualityJob) -> dict[str, Any]:
    """What the bundle's manifest says of the training; file names only, since folders differ between machines."""
    prepared = job.preparation
    return {
        "encoder": job.settings.encoder,
        "layout": job.settings.layout.model_dump(),
        "recipe": asdict(job.recipe),
        "groups": list(prepared.group_counts),
        "systems_turns": list(prepared.bot_counts),
        "negatives": {kind.value: share for kind, share in prepared.recipe.shares.items()},
        "negatives_per_group": prepared.recipe.negatives,
        "with_dailydialog": job.with_dailydialog,
        "seed": job.seed,
        "data": {source.name: list(source.files) for source in prepared.sources},
        "command": "turnscore-train quality --data DATA --output CHECKPOINT"
        + (" --with-dailydialog" if job.with_dailydialog else "")
        + _taught_options(job),
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
