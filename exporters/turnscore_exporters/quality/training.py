"""Trains the quality model on judged responses and user turns, with what people really said in every batch."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.data.dialogues import MARKS, SYSTEM, UNKNOWN, USER, JudgedContext, LabelledTurn, Spoken
from turnscore_core.scorers.quality import HEADS
from turnscore_core.scorers.reaction import REACTIONS

from turnscore_exporters.quality.drills import make_filler, make_moods, make_short_answers
from turnscore_exporters.quality.examples import LABELS, Group, NegativeKind
from turnscore_exporters.quality.model import (
    CONTINUES,
    FITS,
    OVERALL,
    RELEVANT,
    SENTIMENT,
    Outputs,
    QualityModel,
    RowBuilder,
    answer_rows,
)
from turnscore_exporters.training.encoders import Encoder, chunks
from turnscore_exporters.training.loop import LoopSettings, WeightAverage, train

# Batches whose judged contexts are drawn together and sorted by length, so that rows of a batch are of like width.
SORTED_TOGETHER = 16
HEAD_OF_MARK = tuple(HEADS.index(name) for name in MARKS)


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
    """A response to train on. Items of one `context_key` answer the same context; `real` was really said."""

    context: tuple[Spoken, ...]
    response: str
    heads: list[float]
    reactions: list[float] | None = None
    context_key: int = -1
    set_name: str = ""
    fits: float = UNKNOWN
    real: bool = False
    weight: float = 1.0


def judged_items(context: JudgedContext, key: int, generator: random.Random) -> list[TrainingItem]:
    """The responses of a judged context, and at times a filler with them."""
    said, set_name = context[0].context, context[0].set_name
    responses = list(context)
    if generator.random() < 0.12 and (filler := make_filler(said, generator)):
        responses.append(filler)
    items = []
    for response in responses:
        heads = [UNKNOWN] * len(HEADS)
        for name, place in zip(MARKS, HEAD_OF_MARK, strict=True):
            heads[place] = response.labels.get(name, UNKNOWN)
        items.append(TrainingItem(said, response.response, heads, context_key=key, set_name=set_name))
    return items


def marked_items(turns: Sequence[LabelledTurn], key: int, weight: float) -> list[TrainingItem]:
    """Turns of one context with a teacher's marks."""
    return [
        TrainingItem(
            turn.context,
            turn.response,
            [turn.labels.get(name, UNKNOWN) for name in HEADS],
            context_key=key,
            set_name="marked",
            weight=weight,
        )
        for turn in turns
    ]


def reaction_item(turn: LabelledTurn) -> TrainingItem:
    """A user turn in the response's place, seen from the user's side."""
    swapped = tuple((USER if speaker == SYSTEM else SYSTEM, text) for speaker, text in turn.context)
    wanted = [turn.labels["satisfaction"], *(turn.labels.get(name, 0.0) for name in REACTIONS[1:])]
    return TrainingItem(swapped, turn.response, [UNKNOWN] * len(HEADS), reactions=wanted)


def group_items(group: Group, key: int, weight: float) -> list[TrainingItem]:
    """What people really said, and what was made up, with the marks of the rubric for either."""
    items = []
    for each in group:
        real = not each.kind
        heads = [UNKNOWN] * len(HEADS)
        heads[RELEVANT] = 0.1 + 0.7 * each.relevant
        heads[HEADS.index("fluent")] = 0.1 + 0.75 * each.fluent
        heads[HEADS.index("engaging")] = each.engaging
        heads[SENTIMENT], heads[CONTINUES] = each.sentiment, each.continues
        is_made = not real and each.kind != "bot"
        heads[OVERALL] = LABELS[NegativeKind(each.kind)].overall if is_made else UNKNOWN
        fits = each.relevant if real or is_made else UNKNOWN
        items.append(
            TrainingItem(each.context, each.response, heads, context_key=key, fits=fits, real=real, weight=weight)
        )
    return items


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
                items += group_items(next(groups), 1000 + number, recipe.group_weight)
            for number in range(recipe.bots):
                items += group_items(next(bots), 2000 + number, recipe.group_weight)
            for number in range(recipe.drills):
                make = make_moods if generator.random() < recipe.mood_share else make_short_answers
                items += judged_items(make(generator), 3000 + number, random.Random(0))  # noqa: S311
            for number in range(recipe.marked):
                items += marked_items(next(marked), 4000 + number, recipe.marked_weight)
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
    fits = torch.tensor([item.fits for item in items])
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
    names = {name: number for number, name in enumerate({item.set_name for item in items})}
    sets = torch.tensor([names[item.set_name] for item in items])
    same = (keys[:, None] == keys[None]) & (keys[:, None] >= 0)
    near = (sets[:, None] == sets[None]) & torch.tensor([bool(item.set_name) for item in items])[:, None]
    apart = wanted[:, None] - wanted[None]
    weight = (same * 1.0 + (near & ~same) * 0.25) * (apart > 0.06)
    if not weight.any():
        return given.sum() * 0.0
    each = functional.softplus(-(given[:, None] - given[None]))
    return (each * weight).sum() / weight.sum()


def _rank_loss(model: QualityModel, found: Outputs, items: Sequence[TrainingItem]) -> Tensor:
    """Cross entropy of each real response among all real ones of the batch, by compared vectors alone."""
    real = torch.tensor([index for index, item in enumerate(items) if item.real and item.context])
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
        turns = builder.build([(item.context, item.response) for item in items])
        with torch.autocast(device.type, dtype=torch.bfloat16):
            # Steps of which one sends gradients through the context rows.
            found = answer_rows(model, turns, fixed_context=step % 3 > 0)
        return compute_loss(model, found, items, recipe)

    with device:
        train(model, step_loss, loop, groups=groups, state_path=state_path, follower=average)
