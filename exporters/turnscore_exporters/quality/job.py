"""One training run of the quality model, from data files to a checkpoint, its value and its report."""

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import BaseModel, Field
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.data.dialogues import (
    MODERN_FILE,
    TURNS_FILE,
    USER_TURNS_FILE,
    JudgedContext,
    LabelledTurn,
    read_development_sets,
    read_judged_contexts,
    read_judged_turns,
    read_judged_user_turns,
    read_population,
)
from turnscore_assessment.figures import compute_auc, compute_spearman
from turnscore_assessment.files import check_row, read_rows
from turnscore_core.scorers.quality import HEADS, Head, ValueFormula
from turnscore_wire import Speaker

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import QualityTrainOptions
from turnscore_exporters.quality.bundle import score_turns
from turnscore_exporters.quality.drills import make_user_turn
from turnscore_exporters.quality.examples import ExampleMaker, Negatives, make_bot_examples
from turnscore_exporters.quality.model import QualityModel, QualitySettings
from turnscore_exporters.quality.spoken_turns import SOURCES, SpokenTurn, read_source
from turnscore_exporters.quality.training import JudgedRecipe, Material, plan_steps, train_judged
from turnscore_exporters.quality.value import fit_value, score_heads, write_formula
from turnscore_exporters.training.encoders import WEIGHTS_FILE, Encoder, load_encoder, save_model
from turnscore_exporters.training.loop import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder, describe_run


def run_quality_training(options: QualityTrainOptions) -> None:
    """Trains and writes checkpoint, `value.json`, `training.json` and `report.json`.

    The state stays in the output folder: an interrupted run goes on where it stopped.
    """
    settings, marked = QualitySettings(options.encoder), 12 if options.marks else 0
    recipe = JudgedRecipe(passes=options.passes, learning_rate=options.learning_rate, marked=marked)
    claim_folder(options.output, options.data)
    material = read_material(options.data, options.share, options.seed)
    if options.marks:
        by_context = groupby(read_marked_turns(options.marks), key=attrgetter("context"))
        material = replace(material, marked=[list(turns) for _, turns in by_context])
    torch.manual_seed(options.seed)
    model, encoder = start_model(settings, options.init_from)
    steps = plan_steps(material, recipe, options.seed)
    typer.echo(f"{len(steps)} steps of {len(material.judged) + len(material.modern)} judged contexts")
    state = options.output / STATE_FOLDER / "judged.pt"
    train_judged(model.to(options.device), encoder, steps, recipe, state, options.seed)
    model.cpu()
    save_model(model, encoder, options.output)
    formula = fit_value(partial(score_heads, model, encoder), options.data)
    write_formula(options.output, formula)
    write_json(options.output / TRAINING_FILE, describe_training(options, settings, recipe))
    ratings = measure_development(model, encoder, formula, options.data)
    write_json(options.output / REPORT_FILE, {"ratings": ratings})


def start_model(settings: QualitySettings, init_from: Path | None) -> tuple[QualityModel, Encoder]:
    """The untrained model: of the named encoder, or with the weights of a checkpoint."""
    encoder = load_encoder(settings.encoder, settings.layout.row_tokens)
    model = QualityModel(encoder.model, settings)
    if init_from:
        try:
            model.load_state_dict(torch.load(init_from / WEIGHTS_FILE, weights_only=True))
        except (RuntimeError, OSError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{init_from}: cannot be started from: {error}") from error
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
    groups = ExampleMaker(people, Negatives(people), seed).epoch(0)
    # Of what people really said, and of systems' turns with what the user did next: two passes use about half of them.
    count = max(1, int(share * 14_000))

    kinds = [kind for each in (judged, modern) if (kind := [one for one in each if one[0].split == "train"])]
    drawn = [generator.choice(generator.choice(kinds)) for _ in range(len(user_turns) // 3)] if kinds else []
    user_turns += [make_user_turn(each, generator) for each in drawn]

    def thin(contexts: list[JudgedContext]) -> list[JudgedContext]:
        trained = [each for each in contexts if each[0].split == "train"]
        return generator.sample(trained, max(1, int(share * len(trained))))

    return Material(
        judged=thin(judged),
        modern=thin(modern),
        user_turns=user_turns,
        groups=list(islice(groups, count)),
        bots=[[each] for each in make_bot_examples(bots[:count])],
    )


class MarkedTurn(BaseModel):
    """A row of a file of marks (experiments/quality_teacher.py): a turn, and a mark for each head that is known."""

    context: tuple[tuple[Speaker, str], ...]
    response: Annotated[str, Field(min_length=1)]
    marks: Annotated[dict[Head, Annotated[float, Field(ge=-1, le=1)]], Field(min_length=1)]


def read_marked_turns(path: Path) -> Iterator[LabelledTurn]:
    """The rows of a file of marked turns, checked; those of one context follow each other.

    BadFileError naming the line and the field.
    """
    for number, row in read_rows(path):
        turn = check_row(MarkedTurn.model_validate, path, number, row)
        labels = {str(name): mark for name, mark in turn.marks.items()}
        yield LabelledTurn(context=turn.context, response=turn.response, labels=labels, set_name="marked")


def describe_training(options: QualityTrainOptions, settings: QualitySettings, recipe: JudgedRecipe) -> dict[str, Any]:
    """What the bundle's manifest says of the training; file names only, since folders differ between machines."""
    marked = {"marked by a teacher": [options.marks.name]} if options.marks else {}
    return describe_run(
        "turnscore train quality --data DATA --output CHECKPOINT"
        + (" --init-from OLDER_CHECKPOINT" if options.init_from else ""),
        encoder=settings.encoder,
        init_from=options.init_from.name if options.init_from else None,
        layout=settings.layout.model_dump(),
        recipe=asdict(recipe),
        seed=options.seed,
        data={
            "judged by a large language model": [TURNS_FILE, MODERN_FILE, USER_TURNS_FILE],
            **marked,
            **{source.name: list(source.files) for source in SOURCES},
        },
    )


def measure_development(
    model: QualityModel, encoder: Encoder, formula: ValueFormula, folder: Path
) -> dict[str, dict[str, float]]:
    """How value, heads and length agree with people's ratings on each development set that the folder has."""
    sets = read_development_sets(folder)
    for turn in read_judged_turns(folder, ["report"]):
        sets.setdefault(f"{turn.set_name} (report)", []).append(turn)
    return {name: measure_set(model, encoder, turns, formula) for name, turns in sets.items()}


def measure_set(
    model: QualityModel, encoder: Encoder, turns: Sequence[LabelledTurn], formula: ValueFormula
) -> dict[str, float]:
    """Spearman with the ratings (where they are 0 or 1 the area under the ROC curve) of value, each head and length."""
    ratings = [turn.rating for turn in turns]
    measure = compute_auc if set(ratings) <= {0.0, 1.0} else compute_spearman
    found = score_turns(model, encoder, [make_turn(each.context, each.response) for each in turns])
    columns: dict[str, Sequence[float]] = {
        "value": found.values(formula),
        **dict(zip(HEADS, found.heads.T.tolist(), strict=True)),
        "length": [float(len(turn.response)) for turn in turns],
    }
    return {"turns": len(turns), **{name: round(measure(column, ratings), 4) for name, column in columns.items()}}
