"""One training run of the quality model, from data files to a checkpoint with its value."""

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
import typer
from turnscore_assessment.data.dialogue_sets import read_population
from turnscore_assessment.data.labelled_turns import (
    MODERN_FILE,
    TURNS_FILE,
    USER_TURNS_FILE,
    JudgedContext,
    LabelledTurn,
    read_judged_contexts,
    read_judged_user_turns,
)
from turnscore_assessment.files import read_rows

from turnscore_exporters.json_files import write_json
from turnscore_exporters.quality.development import measure_development
from turnscore_exporters.quality.examples import ExampleMaker, ExampleRecipe, make_bot_examples
from turnscore_exporters.quality.model import QualityModel, QualitySettings, load_model, save_model, start_from_compared
from turnscore_exporters.quality.negatives import Negatives
from turnscore_exporters.quality.spoken_turns import SOURCES, SpokenTurn, read_source
from turnscore_exporters.quality.training import JudgedRecipe, Material, plan_steps, train_judged
from turnscore_exporters.quality.value import fit_value, score_heads, write_formula
from turnscore_exporters.training.checkpoints import WEIGHTS_FILE
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_exporters.training.loop import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder


@dataclass(frozen=True, kw_only=True)
class QualityJob:
    """What the command line says."""

    data: Path
    output: Path
    settings: QualitySettings
    recipe: JudgedRecipe = field(default_factory=JudgedRecipe)
    init_from: Path | None = None
    """A checkpoint whose encoder and heads the model starts from, also one of 1.3.0 or before."""
    marks: Path | None = None
    """Turns with a teacher's marks (experiments/quality_teacher.py), to learn besides what was judged."""
    finish_only: Path | None = None
    """A trained checkpoint in place of the training: value and report are made again."""
    share: float = 1.0
    """Of the data; small in a trial."""
    seed: int = 0
    threads: int = 0


def run_quality_job(job: QualityJob) -> None:
    """Trains and writes checkpoint, `value.json`, `training.json` and `report.json`.

    The state stays in the output folder: an interrupted run goes on where it stopped.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    if job.finish_only:
        model, encoder = load_model(job.finish_only)
    else:
        claim_folder(job.output, job.data)
        material = read_material(job.data, job.share, job.seed)
        if job.marks:
            material = replace(material, marked=list(read_marked_turns(job.marks)))
        torch.manual_seed(job.seed)
        model, encoder = start_model(job)
        steps = plan_steps(material, job.recipe, job.seed)
        typer.echo(f"{len(steps)} steps of {len(material.judged) + len(material.modern)} judged contexts")
        train_judged(model, encoder, steps, job.recipe, job.output / STATE_FOLDER / "judged.pt", job.seed)
    save_model(model, encoder, job.output)
    formula = fit_value(partial(score_heads, model, encoder), job.data)
    write_formula(job.output, formula)
    if not job.finish_only:
        write_json(job.output / TRAINING_FILE, describe_training(job))
    write_json(job.output / REPORT_FILE, measure_development(model, encoder, formula, job.data))


def start_model(job: QualityJob) -> tuple[QualityModel, Encoder]:
    """The untrained model: of the named encoder, or of an older checkpoint."""
    encoder = load_encoder(job.settings.encoder, job.settings.layout.row_tokens)
    model = QualityModel(encoder.model, job.settings)
    if job.init_from:
        weights = torch.load(job.init_from / WEIGHTS_FILE, weights_only=True)
        if "joint.0.query.weight" in weights:
            model.load_state_dict(weights)
        else:
            start_from_compared(model, weights)
    else:
        model.start_joint_layers()
    return model, encoder


def read_spoken(folder: Path, seed: int) -> tuple[list[SpokenTurn], list[SpokenTurn]]:
    """What people and what systems said, but in dialogues, and with responses, that are not trained on."""
    judged = chain.from_iterable(read_judged_contexts(folder / name) for name in (TURNS_FILE, MODERN_FILE))
    held = {turn.response for each in judged for turn in each if turn.split != "train"}
    left_out = read_population(folder).dialogues
    turns = [
        turn
        for source in SOURCES
        for turn in read_source(folder, source, seed)
        if turn.dialogue not in left_out and turn.response not in held
    ]
    return [turn for turn in turns if turn.said_by_person], [turn for turn in turns if not turn.said_by_person]


def read_material(folder: Path, share: float, seed: int) -> Material:
    """What is trained on: the judged dialogues of the part `train`, and what people really said.

    No response of another part is in it, also where somebody else said it.
    """
    judged, modern = (list(read_judged_contexts(folder / name)) for name in (TURNS_FILE, MODERN_FILE))
    user_turns = [turn for turn in read_judged_user_turns(folder / USER_TURNS_FILE) if turn.split == "train"]
    people, bots = read_spoken(folder, seed)
    generator = random.Random(seed)  # noqa: S311
    generator.shuffle(bots)
    recipe = ExampleRecipe(negatives=3)
    groups = ExampleMaker(people, Negatives(people), recipe, seed).epoch(0)
    count = max(1, int(share * _GROUPS))

    def thin(contexts: list[JudgedContext]) -> list[JudgedContext]:
        trained = [each for each in contexts if each[0].split == "train"]
        return generator.sample(trained, max(1, int(share * len(trained))))

    return Material(
        judged=thin(judged),
        modern=thin(modern),
        user_turns=user_turns,
        groups=list(islice(groups, count)),
        bots=[[each] for each in make_bot_examples(bots[:count], recipe.labels)],
    )


def read_marked_turns(path: Path) -> Iterator[LabelledTurn]:
    """The rows of a file of marked turns: `context`, `response`, and in `marks` a number for each known head."""
    for _, row in read_rows(path):
        context = tuple((speaker, text) for speaker, text in row["context"])
        yield LabelledTurn(context=context, response=row["response"], labels=row["marks"], set_name="marked")


_GROUPS = 14_000
"""Of what people really said, and of systems' turns with what the user did next: two passes use about half of them."""


def describe_training(job: QualityJob) -> dict[str, Any]:
    """What the bundle's manifest says of the training; file names only, since folders differ between machines."""
    return {
        "encoder": job.settings.encoder,
        "init_from": job.init_from.name if job.init_from else None,
        "layout": job.settings.layout.model_dump(),
        "recipe": asdict(job.recipe),
        "seed": job.seed,
        "data": {
            "judged by a large language model": [TURNS_FILE, MODERN_FILE, USER_TURNS_FILE],
            **({"marked by a teacher": [job.marks.name]} if job.marks else {}),
            **{source.name: list(source.files) for source in SOURCES},
        },
        "command": "turnscore train quality --data DATA --output CHECKPOINT"
        + (" --init-from CHECKPOINT_OF_1.3.0" if job.init_from else ""),
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
