"""Trains the quality model: batches of groups, one loss over all heads. Reads no file and makes no example."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from turnscore_exporters.quality.examples import Example, Group
from turnscore_exporters.quality.model import (
    ENGAGING,
    FIRST_BIAS,
    GOES_ON,
    RELEVANT,
    SENTIMENT,
    SOUND,
    Pair,
    QualityModel,
    QualitySettings,
    RowBuilder,
    collate_pairs,
)
from turnscore_exporters.training.encoders import Encoder
from turnscore_exporters.training.loop import LoopSettings, WeightAverage, run_loop

SORTED_TOGETHER = 256  # groups; chosen: long enough to sort by length, short enough to stay random
SAVE_EVERY = 200
FORGOTTEN_CONTEXT = 0.02
"""Of the groups, so many lose their context, and with it what is known of their relevance: openings look like that."""


@dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """What each part of the loss counts."""

    relevant: float = 1.0
    ranking: float = 0.5
    """Of the cross entropy of the real response among its group and all real responses of the batch."""
    sound: float = 0.5
    engaging: float = 1.0
    sentiment: float = 1.0
    goes_on: float = 0.5


@dataclass(frozen=True, kw_only=True)
class QualityRecipe:
    """How to train. The defaults are the starter's; see docs/models/quality.md."""

    batch_tokens: int = 4096
    learning_rate: float = 5e-5
    head_rate: float = 1e-3
    average_decay: float = 0.995
    weight_decay: float = 0.01
    warm_up_share: float = 0.06
    weights: HeadWeights = field(default_factory=HeadWeights)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """Pairs with their labels. `real` are the places of what was really said, `groups` each pair's group or -1."""

    pairs: list[Pair]
    examples: list[Example]
    groups: list[int]
    real: list[int]


def form_batches(
    groups: Sequence[Group], builder: RowBuilder, batch_tokens: int, generator: random.Random
) -> list[TrainingBatch]:
    """Batches of whole groups of like width within the budget, padding included, in random order.

    Of a response longer than one window, a window is drawn that differs between the group's examples, if one does.
    """
    builder.add(text for group in groups for each in group for text in (each.response, *(t for _, t in each.context)))
    laid_out = [(group, _pairs_of(group, builder, generator)) for group in groups]
    batches: list[TrainingBatch] = []
    for start in range(0, len(laid_out), SORTED_TOGETHER):
        chunk = sorted(laid_out[start : start + SORTED_TOGETHER], key=lambda each: _width(each[1]))
        batch, rows = TrainingBatch(pairs=[], examples=[], groups=[], real=[]), 0
        for group, pairs in chunk:
            added = len({row for pair in pairs for row in (pair.window, *pair.context)})
            if batch.pairs and (rows + added) * _width(pairs) > batch_tokens:
                batches.append(batch)
                batch, rows = TrainingBatch(pairs=[], examples=[], groups=[], real=[]), 0
            _append(batch, group, pairs)
            rows += added
        batches.append(batch)
    generator.shuffle(batches)
    return batches


def _append(batch: TrainingBatch, group: Group, pairs: Sequence[Pair]) -> None:
    number = -1
    if group[0].relevant == 1.0 and pairs[0].context:
        number = len(batch.real)
        batch.real.append(len(batch.pairs))
    batch.pairs.extend(pairs)
    batch.examples.extend(group)
    batch.groups.extend([number] * len(pairs))


def _pairs_of(group: Group, builder: RowBuilder, generator: random.Random) -> list[Pair]:
    built = [builder.build(each.context, each.response) for each in group]
    context = () if generator.random() < FORGOTTEN_CONTEXT else built[0].context
    pairs = []
    for example, rows in zip(group, built, strict=True):
        place = generator.randrange(len(rows.windows))
        if example.kind and len(rows.windows) > 1:
            sound = set(built[0].windows)
            spoilt = [at for at, row in enumerate(rows.windows) if row not in sound]
            place = generator.choice(spoilt or [place])
        pairs.append(Pair(rows.windows[place], context))
    return pairs


def _width(pairs: Sequence[Pair]) -> int:
    return max(len(row) for pair in pairs for row in (pair.window, *pair.context))


def compute_loss(outputs: Tensor, batch: TrainingBatch, weights: HeadWeights) -> Tensor:
    """The batch's loss of outputs [pairs, heads]: for each head the mean over the pairs that have its label."""
    examples = batch.examples
    relevant = [
        each.relevant if pair.context else float("nan") for each, pair in zip(examples, batch.pairs, strict=True)
    ]
    loss = weights.relevant * _entropy(outputs[:, RELEVANT], relevant)
    loss = loss + weights.sound * _entropy(outputs[:, SOUND], [each.sound for each in examples])
    loss = loss + weights.engaging * _entropy(outputs[:, ENGAGING], [each.engaging for each in examples])
    stops = [each.goes_on_weight for each in examples]
    loss = loss + weights.goes_on * _entropy(outputs[:, GOES_ON], [each.goes_on for each in examples], stops)
    sentiment = torch.tensor([each.sentiment for each in examples])
    known = ~sentiment.isnan()
    if known.any():
        loss = loss + weights.sentiment * (outputs[known, SENTIMENT] - sentiment[known]).square().mean()
    return loss


def _entropy(logits: Tensor, labels: Sequence[float], weights: Sequence[float] | None = None) -> Tensor:
    wanted = torch.tensor(labels)
    known = ~wanted.isnan()
    if not known.any():
        return logits.sum() * 0.0
    weight = None if weights is None else torch.tensor(weights)[known]
    return functional.binary_cross_entropy_with_logits(logits[known], wanted[known], weight=weight)


def rank_loss(model: QualityModel, vectors: Tensor, rows: Tensor, context: Tensor, batch: TrainingBatch) -> Tensor:
    """Mean over the groups: cross entropy of the real response among its group's and all groups' real responses."""
    real = torch.tensor(batch.real)
    if len(real) < 2:
        return vectors.sum() * 0.0
    groups = torch.tensor(batch.groups)
    count = len(real)
    candidates = rows[real].repeat(count)
    contexts = context[real].repeat_interleave(count, 0)
    across = model.compare(vectors, candidates, contexts)[:, RELEVANT].view(count, count)
    own = model.compare(vectors, rows, context)[:, RELEVANT]
    losses = []
    for number in range(count):
        made = own[(groups == number) & (torch.arange(len(groups)) != real[number])]
        losses.append(torch.logsumexp(torch.cat([across[number], made]), 0) - across[number, number])
    return torch.stack(losses).mean()


def train_model(
    batches: Sequence[TrainingBatch],
    model: QualityModel,
    recipe: QualityRecipe,
    run_key: str,
    state_path: Path | None = None,
    seed: int = 0,
) -> None:
    """Trains the model in place, or goes on where `state_path` stopped; the averaged weights count."""
    torch.manual_seed(seed)
    model.train()
    optimizer = _build_optimizer(model, recipe)
    loop = LoopSettings(
        steps=len(batches),
        run_key=run_key,
        seed=seed,
        warm_up_steps=max(1, int(recipe.warm_up_share * len(batches))),
        save_every=SAVE_EVERY,
        description="quality",
    )
    average = WeightAverage(recipe.average_decay, len(batches) // 5)

    def step_loss(step: int) -> Tensor:
        batch = batches[step]
        input_ids, attention_mask, rows, context = collate_pairs(batch.pairs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = model.read_rows(input_ids, attention_mask)
        loss = compute_loss(model.compare(vectors, rows, context), batch, recipe.weights)
        return loss + recipe.weights.ranking * rank_loss(model, vectors, rows, context, batch)

    run_loop(model, optimizer, step_loss, loop, state_path, average)
    average.put_into(model)
    model.requires_grad_(True).eval()


def new_model(encoder: Encoder, settings: QualitySettings) -> QualityModel:
    """An encoder with untrained heads, which begin at what is usual."""
    model = QualityModel(encoder.model, settings)
    with torch.no_grad():
        model.head.bias[GOES_ON] = 2.0
        model.head.bias[SENTIMENT] = 0.1
        model.head.bias[RELEVANT] = FIRST_BIAS
    return model


def _build_optimizer(model: QualityModel, recipe: QualityRecipe) -> torch.optim.Optimizer:
    model.encoder.embeddings.requires_grad_(False)
    trained = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    head = [*model.hidden.parameters(), *model.head.parameters(), model.slope]
    groups = [
        {"params": head, "lr": recipe.head_rate},
        {"params": trained, "lr": recipe.learning_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=recipe.weight_decay, betas=(0.9, 0.98))
