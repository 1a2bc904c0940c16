"""Trains the quality model on judged responses and user turns, with what people really said in every batch."""

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import Field, TypeAdapter
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.data.dialogues import (
    MODERN_FILE,
    SYSTEM,
    TURNS_FILE,
    UNKNOWN,
    USER,
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
from turnscore_core.scorers.reaction import REACTIONS

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import QualityTrainOptions
from turnscore_exporters.quality.bundle import score_turns
from turnscore_exporters.quality.drills import make_filler, make_moods, make_short_answers, make_user_turn
from turnscore_exporters.quality.examples import ExampleMaker, Group, Negatives, make_bot_examples
from turnscore_exporters.quality.model import (
    CONTINUES,
    FITS,
    OVERALL,
    RELEVANT,
    SENTIMENT,
    Outputs,
    QualityModel,
    QualitySettings,
    RowBuilder,
    answer_rows,
)
from turnscore_exporters.quality.spoken_turns import BOT, PERSON, SOURCES, read_source
from turnscore_exporters.quality.value import VALUE_FILE, fit_value, score_heads
from turnscore_exporters.training.encoders import WEIGHTS_FILE, Encoder, chunks, load_encoder, save_model
from turnscore_exporters.training.loop import (
    REPORT_FILE,
    STATE_FOLDER,
    TRAINING_FILE,
    LoopSettings,
    WeightAverage,
    claim_folder,
    describe_run,
    train,
)

# Batches whose judged contexts are drawn together and sorted by length, so that rows of a batch are of like width.
SORTED_TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class JudgedRecipe:
    """How to train. docs/models/quality.md has what was tried."""

    judged: int = 16  # Judged contexts of a step.
    user_turns: int = 4
    groups: int = 4  # People's turns with made-up responses: the objectives that taught relevance.
    bots: int = 4
    drills: int = 3
    mood_share: float = 0.5  # Of the drills, those of good and bad news; the others are questions with a short answer.
    marked: int = 0  # Contexts of a step whose turns a teacher marked.
    passes: float = 3.0
    modern_share: int = 2  # How often a pass reads each of the modern contexts.
    learning_rate: float = 6e-5
    joint_rate: float = 1.5e-4
    head_rate: float = 8e-4
    weight_decay: float = 0.01
    warm_up_share: float = 0.05
    average_decay: float = 0.997
    overall_weight: float = 2.0
    pair_weight: float = 0.6
    reaction_weight: float = 0.7
    group_weight: float = 0.5
    marked_weight: float = 0.5
    rank_weight: float = 0.15


@dataclass(slots=True)
class TrainingItem:
    """A turn to train on, its labels named as heads and reactions. Items of one `context_key` answer the same context.

    The label `fits` is 1 where the response was really said.
    """

    turn: LabelledTurn
    context_key: int = -1
    weight: float = 1.0

    @property
    def heads(self) -> list[float]:
        return [self.turn.labels.get(name, UNKNOWN) for name in HEADS]

    @property
    def reactions(self) -> list[float] | None:
        """None where nobody judged them; signals without a label were not shown."""
        labels = self.turn.labels
        return [labels.get(name, 0.0) for name in REACTIONS] if REACTIONS[0] in labels else None


def judged_items(context: JudgedContext, key: int, generator: random.Random) -> list[TrainingItem]:
    """The responses of a judged context, and at times a filler with them."""
    turns = list(context)
    if generator.random() < 0.12 and (filler := make_filler(turns[0].context, generator)):
        turns.append(replace(filler, set_name=turns[0].set_name))
    return [TrainingItem(turn, key) for turn in turns]


def reaction_item(turn: LabelledTurn) -> TrainingItem:
    """A user turn in the response's place, seen from the user's side."""
    swapped = tuple((USER if speaker == SYSTEM else SYSTEM, text) for speaker, text in turn.context)
    return TrainingItem(replace(turn, context=swapped))


@dataclass(frozen=True, kw_only=True)
class Material:
    """All that is trained on."""

    judged: Sequence[JudgedContext]
    modern: Sequence[JudgedContext]
    user_turns: Sequence[LabelledTurn]
    groups: Sequence[Group]
    bots: Sequence[Group]
    # What a teacher marked, by context: `labels` has a probability for each of HEADS that it knows.
    marked: Sequence[Sequence[LabelledTurn]] = ()


def plan_steps(material: Material, recipe: JudgedRecipe, seed: int) -> list[list[TrainingItem]]:
    """The items of every step, in the order of the training."""
    generator = random.Random(f"judged {seed}")  # noqa: S311
    contexts = _passes(
        [*material.judged, *[each for each in material.modern for _ in range(recipe.modern_share)]],
        recipe.passes,
        generator,
    )
    users = _forever(material.user_turns, generator)
    groups, bots = _forever(material.groups, generator), _forever(material.bots, generator)
    marked = _forever(material.marked, generator)
    steps: list[list[TrainingItem]] = []
    together = recipe.judged * SORTED_TOGETHER
    for start in range(0, len(contexts), together):
        chunk = sorted(contexts[start : start + together], key=lambda each: max(len(turn.response) for turn in each))
        batches = list(chunks(chunk, recipe.judged))
        generator.shuffle(batches)
        for batch in batches:
            items = [item for key, each in enumerate(batch) for item in judged_items(each, key, generator)]
            items += [reaction_item(next(users)) for _ in range(recipe.user_turns)]
            for number in range(recipe.groups):
                items += [TrainingItem(turn, 1000 + number, recipe.group_weight) for turn in next(groups)]
            for number in range(recipe.bots):
                items += [TrainingItem(turn, 2000 + number, recipe.group_weight) for turn in next(bots)]
            for number in range(recipe.drills):
                make = make_moods if generator.random() < recipe.mood_share else make_short_answers
                items += judged_items(make(generator), 3000 + number, random.Random(0))  # noqa: S311
            for number in range(recipe.marked):
                items += [TrainingItem(turn, 4000 + number, recipe.marked_weight) for turn in next(marked)]
            steps.append(items)
    return steps


def _passes(items: Sequence[JudgedContext], passes: float, generator: random.Random) -> list[JudgedContext]:
    wanted = int(len(items) * passes)
    drawn: list[JudgedContext] = []
    while len(drawn) < wanted:
        drawn += generator.sample(items, min(len(items), wanted - len(drawn)))
    return drawn


def _forever(items: Sequence[Any], generator: random.Random) -> Iterator[Any]:
    while items:
        yield from generator.sample(items, len(items))


def compute_loss(model: QualityModel, found: Outputs, items: Sequence[TrainingItem], recipe: JudgedRecipe) -> Tensor:
    """Cross entropy of every head that has a mark, order of the overall marks, and ranks of what was really said."""
    heads = torch.tensor([item.heads for item in items])
    weights = torch.tensor([item.weight for item in items])
    outputs = found.quality
    loss = outputs.sum() * 0.0
    for place in range(len(HEADS)):
        known = ~heads[:, place].isnan()
        if not known.any():
            continue
        wanted, given = heads[known, place], outputs[known, place]
        if place == SENTIMENT:
            each = (given - wanted).square()
        else:
            each = functional.binary_cross_entropy_with_logits(given, wanted, reduction="none")
        share = recipe.overall_weight if place == OVERALL else 0.5 if place == CONTINUES else 1.0
        loss = loss + share * (each * weights[known]).sum() / weights[known].sum()
    loss = loss + recipe.pair_weight * compute_order_loss(outputs[:, OVERALL], heads[:, OVERALL], items)
    loss = loss + 0.5 * recipe.pair_weight * compute_order_loss(outputs[:, RELEVANT], heads[:, RELEVANT], items)
    fits = torch.tensor([item.turn.labels.get("fits", UNKNOWN) for item in items])
    known = ~fits.isnan()
    if known.any():
        loss = loss + 0.5 * functional.binary_cross_entropy_with_logits(outputs[known, FITS], fits[known])
    asked = [index for index, item in enumerate(items) if item.reactions is not None]
    if asked:
        wanted = torch.tensor([items[index].reactions for index in asked])
        signals = functional.binary_cross_entropy_with_logits(found.reactions[asked], wanted, reduction="none").mean(0)
        loss = loss + recipe.reaction_weight * (2 * signals[0] + signals[1:].sum())
    return loss + recipe.rank_weight * _rank_loss(model, found, items)


def compute_order_loss(given: Tensor, wanted: Tensor, items: Sequence[TrainingItem]) -> Tensor:
    """Pairwise logistic loss over items of one context, and at a quarter over those of one set; ties count nothing."""
    keys = torch.tensor([item.context_key for item in items])
    names = {name: number for number, name in enumerate({item.turn.set_name for item in items})}
    sets = torch.tensor([names[item.turn.set_name] for item in items])
    same = (keys[:, None] == keys[None]) & (keys[:, None] >= 0)
    near = (sets[:, None] == sets[None]) & torch.tensor([bool(item.turn.set_name) for item in items])[:, None]
    apart = wanted[:, None] - wanted[None]
    weight = (same * 1.0 + (near & ~same) * 0.25) * (apart > 0.06)
    if not weight.any():
        return given.sum() * 0.0
    each = functional.softplus(-(given[:, None] - given[None]))
    return (each * weight).sum() / weight.sum()


def _rank_loss(model: QualityModel, found: Outputs, items: Sequence[TrainingItem]) -> Tensor:
    """Cross entropy of each real response among all real ones of the batch, by compared vectors alone."""
    real = torch.tensor(
        [index for index, item in enumerate(items) if item.turn.labels.get("fits") == 1 and item.turn.context]
    )
    count = len(real)
    if count < 2:
        return found.pooled.sum() * 0.0
    width = (found.pooled.shape[-1] - 1) // 2
    latest = found.context[found.context_rows[real, 0].clamp_min(0)][:, :width]
    logits = model.slope * 2.0 * latest @ found.pooled[real, :width].T
    return functional.cross_entropy(logits, torch.arange(count))


def freeze_lower_layers(encoder: Any, layers: int) -> None:
    """Leaves a transformer's embeddings and lowest layers as they are, and takes its dropout away."""
    encoder.embeddings.requires_grad_(False)
    encoder.encoder.layer[:layers].requires_grad_(False)
    for part in encoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0


def train_judged(
    model: QualityModel,
    encoder: Encoder,
    steps: Sequence[Sequence[TrainingItem]],
    recipe: JudgedRecipe,
    state_path: Path,
    seed: int = 0,
) -> None:
    """Trains the model in place, on its device, or goes on where `state_path` stopped; the averaged weights count."""
    device = next(model.parameters()).device
    builder = RowBuilder(encoder, model.settings.layout)
    freeze_lower_layers(model.encoder, 2)
    encoder_weights = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    fresh = [weight for name, weight in model.named_parameters() if not name.startswith(("encoder.", "joint."))]
    groups: list[dict[str, Any]] = [
        {"params": fresh, "lr": recipe.head_rate},
        {"params": list(model.joint.parameters()), "lr": recipe.joint_rate},
        {"params": encoder_weights},
    ]
    loop = LoopSettings(
        steps=len(steps),
        run_key=f"judged {asdict(recipe)} {seed} {len(steps)}",
        seed=seed,
        warm_up_steps=max(1, int(recipe.warm_up_share * len(steps))),
        save_every=100,
        description="judged",
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        betas=(0.9, 0.98),
    )
    average = WeightAverage(recipe.average_decay, int(len(steps) * 0.6))

    def step_loss(step: int) -> Tensor:
        items = steps[step]
        turns = builder.build([(item.turn.context, item.turn.response) for item in items])
        with torch.autocast(device.type, dtype=torch.bfloat16):
            # Steps of which one sends gradients through the context rows.
            found = answer_rows(model, turns, fixed_context=step % 3 > 0)
        return compute_loss(model, found, items, recipe)

    with device:
        train(model, step_loss, loop, groups=groups, state_path=state_path, follower=average)


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
    write_json(options.output / VALUE_FILE, formula)
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


def read_spoken(folder: Path, seed: int) -> tuple[list[LabelledTurn], list[LabelledTurn]]:
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
    return [turn for turn in turns if turn.system == PERSON], [turn for turn in turns if turn.system == BOT]


def read_material(folder: Path, share: float, seed: int) -> Material:
    """What is trained on: the judged dialogues of the part `train`, and what people really said.

    No response of another part is in it, also where somebody else said it.
    """
    judged, modern = (
        [each for each in read_judged_contexts(folder / name) if each[0].split == "train"]
        for name in (TURNS_FILE, MODERN_FILE)
    )
    user_turns = [turn for turn in read_judged_user_turns(folder / USER_TURNS_FILE) if turn.split == "train"]
    people, bots = read_spoken(folder, seed)
    generator = random.Random(seed)  # noqa: S311
    generator.shuffle(bots)
    groups = ExampleMaker(people, Negatives(people), seed).epoch(0)
    # Of what people really said, and of systems' turns with what the user did next: two passes use about half of them.
    count = max(1, int(share * 14_000))

    kinds = [each for each in (judged, modern) if each]
    drawn = [generator.choice(generator.choice(kinds)) for _ in range(len(user_turns) // 3)] if kinds else []
    user_turns += [make_user_turn(each, generator) for each in drawn]

    def thin(contexts: list[JudgedContext]) -> list[JudgedContext]:
        return generator.sample(contexts, max(1, int(share * len(contexts))))

    return Material(
        judged=thin(judged),
        modern=thin(modern),
        user_turns=user_turns,
        groups=list(islice(groups, count)),
        bots=[[each] for each in make_bot_examples(bots[:count])],
    )


_MARKS = TypeAdapter(Annotated[dict[Head, Annotated[float, Field(ge=-1, le=1)]], Field(min_length=1)])
_TURN = TypeAdapter(LabelledTurn)


def read_marked_turns(path: Path) -> Iterator[LabelledTurn]:
    """The rows of a file of marks (experiments/quality_teacher.py): turns, with `marks` of the heads that are known.

    Those of one context follow each other. BadFileError naming the line and the field.
    """
    for number, row in read_rows(path):
        marks = check_row(_MARKS.validate_python, path, number, row.get("marks"), "marks")
        fields = {"context": row.get("context"), "response": row.get("response"), "labels": marks}
        yield check_row(_TURN.validate_python, path, number, {**fields, "set_name": "marked"})


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
    found = score_turns(model, encoder, [each.to_score() for each in turns])
    columns: dict[str, Sequence[float]] = {
        "value": found.values(formula),
        **dict(zip(HEADS, found.heads.T.tolist(), strict=True)),
        "length": [float(len(turn.response)) for turn in turns],
    }
    return {"turns": len(turns), **{name: round(measure(column, ratings), 4) for name, column in columns.items()}}
