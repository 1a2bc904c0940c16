"""What a larger sentence encoder finds alike, learned by the model that is served.

`relevant` learns, of each response and each context of a batch, its own first logit raised by what the teacher sees
beyond it. The text vectors learn the teacher's cosines. All other heads, and `relevant` of made-up responses that are
alike and yet wrong (parrots, repeats, contradictions), are held to what they were.
"""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.model import (
    HEADS,
    RELEVANT,
    SENTIMENT,
    QualityModel,
    RowBuilder,
    collate_pairs,
)
from turnscore_exporters.quality.row_vectors import RowVectors
from turnscore_exporters.quality.spoken_turns import SpokenTurn
from turnscore_exporters.quality.taught.teacher import HalfVectors, compare_texts
from turnscore_exporters.quality.taught.turns import TaughtBatch, draw_batches, list_texts
from turnscore_exporters.training.encoders import Encoder
from turnscore_exporters.training.loop import LoopSettings, WeightAverage, run_loop

HELD_OUT = 512
FURTHEST_LOGIT = 7.0
LEAST_WEIGHT = 0.25
"""Of the first logit in the regression, where it says next to nothing: a model that has hardly been trained."""
ROWS_AT_ONCE = 32
"""Rows of like width that are read together: a batch's widest row is three times as wide as its mean."""
SAVE_EVERY = 100
HELD_HEADS = [place for place in range(len(HEADS)) if place not in (RELEVANT, SENTIMENT)]


@dataclass(frozen=True, kw_only=True)
class TeacherRecipe:
    """How the teacher is learned from. Chosen; docs/models/quality.md has what it is worth."""

    batch: int = 64
    others: int = 15
    """Responses of other turns of the batch that each context is compared with, beside its own."""
    epochs: float = 1.0
    learning_rate: float = 4e-5
    head_rate: float = 3e-4
    emphasis: float = 1.7
    """The likeness counts so many times as much as a regression on the fitting data says, which the model has seen.

    Chosen on the development sets, with the teacher's cosines added to the logits of `quality:1.2.0`.
    """
    likeness_weight: float = 20.0
    """Of the squared difference between the cosines of the model's text vectors and the teacher's."""
    held_weight: float = 0.5
    """Of what is held: the other heads, and `relevant` of made-up responses."""
    made_up_share: float = 0.25
    """Of a batch's turns, so many get a made-up response beside."""
    average_decay: float = 0.98
    weight_decay: float = 0.01
    warm_up_share: float = 0.04


@dataclass(frozen=True, kw_only=True)
class TaughtLogit:
    """What `relevant` is to become: its first logit + `ratio` times the teacher's likeness - `offset`."""

    ratio: float
    offset: float

    def compute(self, logits: Tensor, likeness: Tensor) -> Tensor:
        """The wanted logits, of the first ones and the likeness, of any one shape."""
        return (logits + self.ratio * likeness - self.offset).clamp(-FURTHEST_LOGIT, FURTHEST_LOGIT)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """All that stays the same from step to step."""

    first: QualityModel
    builder: RowBuilder
    vectors: dict[str, HalfVectors]
    wanted: TaughtLogit
    recipe: TeacherRecipe


def draw_candidates(count: int, others: int) -> Tensor:
    """For each of `count` contexts the places of its own response and of up to `others` others, [count, 1 + others]."""
    distances = torch.randperm(max(0, count - 1))[:others] + 1
    return (torch.arange(count)[:, None] + torch.cat([torch.zeros(1, dtype=torch.long), distances])[None]) % count


def compare_candidates(
    model: QualityModel, vectors: Tensor, responses: Tensor, contexts: Tensor, candidates: Tensor
) -> Tensor:
    """Logits of `relevant` [contexts, candidates], of row vectors, response rows [n] and context rows [n, turns]."""
    rows = contexts[: len(candidates)].repeat_interleave(candidates.shape[1], 0)
    return model.compare(vectors, responses[candidates.flatten()], rows)[:, RELEVANT].view_as(candidates)


def ask_teacher(turns: Sequence[SpokenTurn], vectors: dict[str, HalfVectors]) -> tuple[Tensor, Tensor]:
    """The teacher's likeness [contexts, responses], and its cosines among the responses and latest turns."""
    responses = _stack([vectors[turn.response] for turn in turns])
    latest = _stack([vectors[turn.context[-1][1]] for turn in turns])
    nothing = np.zeros_like(vectors[turns[0].response])
    previous = _stack([vectors[turn.context[-2][1]] if len(turn.context) > 1 else nothing for turn in turns])
    texts = torch.cat([responses, latest])
    return compare_texts(responses, latest, previous), texts @ texts.T


def _stack(vectors: Sequence[HalfVectors]) -> Tensor:
    return functional.normalize(torch.from_numpy(np.stack(vectors)).float(), dim=-1)


def fit_taught_logit(logits: Tensor, likeness: Tensor, own: Tensor, emphasis: float = 1.0) -> TaughtLogit:
    """The logistic regression of "is the own response" [pairs] on first logit and likeness, both classes alike.

    The first logit keeps its weight of 1, the likeness gets `emphasis` times its own. The offset leaves as many own
    responses above 0 as before.
    """
    labels = own.double()
    weight = torch.where(own, (~own).sum() / own.sum(), 1.0).double()
    design = torch.stack([logits, likeness, torch.ones_like(logits)], 1).double()
    found = torch.zeros(3, dtype=torch.double)
    for _ in range(30):
        expected = (design @ found).sigmoid()
        bend = (design * (weight * expected * (1 - expected))[:, None]).T @ design
        found += torch.linalg.solve(bend + 1e-6 * torch.eye(3), design.T @ (weight * (labels - expected)))
    scale = max(float(found[0]), LEAST_WEIGHT)
    ratio = emphasis * float(found[1]) / scale
    missed = float((logits[own] <= 0).float().mean())
    offset = torch.quantile((logits + ratio * likeness)[own], missed)
    return TaughtLogit(ratio=ratio, offset=float(offset))


def measure_taught_logit(
    first: QualityModel,
    builder: RowBuilder,
    turns: Sequence[SpokenTurn],
    vectors: dict[str, HalfVectors],
    recipe: TeacherRecipe,
) -> TaughtLogit:
    """What fit_taught_logit finds on people's own responses against the others of their batch."""
    logits, likeness, own = [], [], []
    with torch.no_grad():
        for start in range(0, len(turns), recipe.batch):
            chosen = turns[start : start + recipe.batch]
            rows, responses, contexts = read_batch(first, builder, TaughtBatch(turns=list(chosen), made_up=[]))
            people = torch.tensor([turn.said_by_person for turn in chosen])
            places = torch.arange(len(chosen))
            candidates = (places[:, None] + places[None]) % len(chosen)
            logits.append(compare_candidates(first, rows, responses, contexts, candidates)[people].flatten())
            likeness.append(ask_teacher(chosen, vectors)[0].gather(1, candidates)[people].flatten())
            own.append((candidates == candidates[:, :1])[people].flatten())
    if not sum(map(len, own)):
        raise ExporterError("the teacher's part has no turn of a person")
    return fit_taught_logit(torch.cat(logits), torch.cat(likeness), torch.cat(own), recipe.emphasis)


def read_batch(
    model: QualityModel, builder: RowBuilder, batch: TaughtBatch, *, half: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Row vectors, response rows and context rows of the turns, then of the made-up ones; bfloat16 if `half`."""
    asked = [(turn.context, turn.response) for turn in batch.turns] + batch.made_up
    ids, mask, responses, contexts = collate_pairs([builder.first_pair(*each) for each in asked])
    lengths = mask.sum(1)
    order = lengths.argsort()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        read = []
        for chosen in torch.split(order, ROWS_AT_ONCE):
            width = int(lengths[chosen].max())
            read.append(model.read_rows(ids[chosen, :width], mask[chosen, :width]))
    return torch.cat(read)[order.argsort()], responses, contexts


def compute_lesson_loss(model: QualityModel, lesson: Lesson, batch: TaughtBatch) -> Tensor:
    """How far the model is from what the teacher wants, and from what it was where that is to stay."""
    count = len(batch.turns)
    rows, responses, contexts = read_batch(model, lesson.builder, batch)
    with torch.no_grad():
        first_rows, _, _ = read_batch(lesson.first, lesson.builder, batch)
        candidates = draw_candidates(count, lesson.recipe.others)
        first = compare_candidates(lesson.first, first_rows, responses, contexts, candidates)
        kept = lesson.first.compare(first_rows, responses, contexts)
        likeness, cosines = ask_teacher(batch.turns, lesson.vectors)
        wanted = lesson.wanted.compute(first, likeness.gather(1, candidates))
    found = compare_candidates(model, rows, responses, contexts, candidates)
    missed = functional.smooth_l1_loss(found, wanted, reduction="none")
    outputs = model.compare(rows, responses, contexts)
    held = functional.mse_loss(outputs[:, HELD_HEADS], kept[:, HELD_HEADS])
    held = held + 2 * functional.mse_loss(outputs[:, SENTIMENT], kept[:, SENTIMENT])
    if batch.made_up:
        held = held + functional.smooth_l1_loss(outputs[count:, RELEVANT], kept[count:, RELEVANT])
    width = (rows.shape[-1] - 1) // 2
    means = rows[torch.cat([responses[:count], contexts[:count, 0]]), :width]
    alike = (means @ means.T - cosines).square().mean()
    relevant = (missed[:, 0].mean() + missed[:, 1:].mean()) / 2
    return relevant + lesson.recipe.held_weight * held + lesson.recipe.likeness_weight * alike


def learn_from_teacher(
    model: QualityModel,
    encoder: Encoder,
    turns: Sequence[SpokenTurn],
    people: Sequence[SpokenTurn],
    vectors: dict[str, HalfVectors],
    recipe: TeacherRecipe,
    state_path: Path | None = None,
    seed: int = 0,
) -> TaughtLogit:
    """Trains the model in place, or goes on where `state_path` stopped; the averaged weights count."""
    first = RowVectors().freeze(copy.deepcopy(model).eval().requires_grad_(False))
    builder = RowBuilder(encoder, model.settings.layout)
    builder.add(list_texts(turns))
    wanted = measure_taught_logit(first, builder, turns[:HELD_OUT], vectors, recipe)
    lesson = Lesson(first=first, builder=builder, vectors=vectors, wanted=wanted, recipe=recipe)
    drawn = turns[HELD_OUT:] or turns
    batches = draw_batches(drawn, people, recipe.batch, recipe.epochs, recipe.made_up_share, seed)
    model.train()
    model.encoder.eval()
    model.encoder.embeddings.requires_grad_(False)
    body = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    head = [*model.hidden.parameters(), *model.head.parameters(), model.slope]
    groups = [{"params": head, "lr": recipe.head_rate}, {"params": body, "lr": recipe.learning_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay, betas=(0.9, 0.98))
    average = WeightAverage(recipe.average_decay, len(batches) // 5)
    loop = LoopSettings(
        steps=len(batches),
        run_key=f"teacher {recipe} {seed} {len(turns)} {wanted.ratio:.2f} {fingerprint(first)}",
        seed=seed,
        warm_up_steps=max(1, int(recipe.warm_up_share * len(batches))),
        save_every=SAVE_EVERY,
        description="teacher",
    )
    run_loop(
        model, optimizer, lambda step: compute_lesson_loss(model, lesson, batches[step]), loop, state_path, average
    )
    average.put_into(model)
    model.requires_grad_(True).eval()
    return wanted


def fingerprint(model: QualityModel) -> str:
    """Of the weights: a run goes on only from the model it began with."""
    digest = hashlib.blake2b(digest_size=8)
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()
