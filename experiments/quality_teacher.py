"""Trains larger cross-encoders on judged turns, which mark turns that nobody judged, for `train quality --marks`.

    .venv-dev/bin/python experiments/quality_teacher.py train ENCODER --data DATA --output TEACHER --device cuda
    .venv-dev/bin/python experiments/quality_teacher.py mark TEACHER --data DATA --output MARKS.jsonl --device cuda

ENCODER is the folder of a sentence encoder such as all-mpnet-base-v2 (110 million parameters, Apache-2.0): too large to
be served, so the model that is served learns from its marks. A teacher takes minutes on a GPU, and days on two cores.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer
from turnscore_assessment.data.dialogues import (
    DAILYDIALOG,
    MARKS,
    USER,
    LabelledTurn,
    Spoken,
    read_development_sets,
    read_judged_turns,
    read_population,
)
from turnscore_assessment.files import read_rows
from turnscore_core.scorers.quality import HEADS
from turnscore_exporters.quality import training
from turnscore_exporters.quality.examples import NegativeKind, Negatives
from turnscore_exporters.quality.model import CONTINUES, SENTIMENT, load_model
from turnscore_exporters.quality.value import score_heads
from turnscore_exporters.training.loop import LoopSettings, WeightAverage, train

# Of the latest context turns, oldest first, and of a response's start and end.
CONTEXT_TOKENS, RESPONSE_TOKENS = (40, 40, 40, 64, 64), (80, 48)
TOKENS_AT_ONCE = 4096
PLACES = [HEADS.index(name) for name in MARKS]
RECIPE = training.JudgedRecipe(judged=48, user_turns=0, groups=6, bots=2, drills=4, passes=3.7)
# The output that learns only which of two turns, or their dialogues, people preferred; turns of a step.
PEOPLE, PEOPLE_AT_ONCE = len(MARKS), 60
RATE_OF_LOWER_LAYER = 0.9
# Dialogues that people rated, and the marks whose mean counts, which are all where none is named.
RATED_DIALOGUES: Mapping[str, Sequence[str]] = {
    "dialogue_feedback.jsonl.gz": (
        "polite", "attentive", "understood_feelings", "answered_feelings", "likable", "sensible",
    ),
    "dstc9_interactive.jsonl.gz": ("likeable", "coherent", "human (overall)", "understanding"),
    **{f"human_assessment/{name}_pass.jsonl.gz": () for name in ("free_run1", "free_run2", "icebreaker")},
}  # fmt: skip
Asked = tuple[Sequence[Spoken], str]


class Teacher(nn.Module):
    """Marks of a response that is read in one row with the latest turns of its context."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        width = int(self.encoder.config.hidden_size)
        self.hidden = nn.Linear(width * 4 + 1, 256)
        self.head = nn.Linear(256, len(MARKS) + 1)

    def lay_out(self, turns: Sequence[Asked]) -> list[tuple[list[int], int]]:
        """The ids of each turn's row, and where its response begins."""
        most = len(CONTEXT_TOKENS)
        texts = [[text for _, text in context[-most:]] + [response] for context, response in turns]
        flat = [text for each in texts for text in each]
        ids = iter(self.tokenizer(flat, add_special_tokens=False)["input_ids"]) if flat else iter(())
        first, end = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        rows = []
        for each in texts:
            row = [first]
            for tokens in CONTEXT_TOKENS[most - len(each) + 1 :]:
                row += [*next(ids)[-tokens:], end]
            row.append(end)
            said, (start, last) = next(ids), RESPONSE_TOKENS
            rows.append(([*row, *(said if len(said) <= start + last else said[:start] + said[-last:]), end], len(row)))
        return rows

    def forward(self, rows: Sequence[tuple[list[int], int]]) -> Tensor:
        """Logits of MARKS, and what orders turns as people do [turns, marks + 1]."""
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        mask, side = torch.zeros(2, len(rows), longest)
        for place, (row, begins) in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
            side[place, begins : len(row)] = 1
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            states = self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
        means = [
            (states * part[..., None]).sum(1) / part.sum(1, keepdim=True).clamp_min(1) for part in (side, mask - side)
        ]
        lengths = side.sum(1, keepdim=True).log() / 5
        read = torch.cat([states[:, 0], *means, means[0] * means[1] * 4, lengths], -1)
        result: Tensor = self.head(functional.dropout(functional.gelu(self.hidden(read)), 0.1, self.training))
        return result

    def mark(self, turns: Sequence[Asked]) -> Tensor:
        """What forward gives for turns, in their order."""
        rows = self.lay_out(turns)
        order = sorted(range(len(rows)), key=lambda place: len(rows[place][0]))
        found = torch.zeros(len(rows), len(MARKS) + 1)
        with torch.inference_mode():
            while order:
                count = max(1, min(1024, TOKENS_AT_ONCE // len(rows[order[-1]][0])))
                chosen, order = order[-count:], order[:-count]
                found[chosen] = self([rows[place] for place in chosen])
        return found


def teacher_loss(outputs: Tensor, items: Sequence[training.TrainingItem]) -> Tensor:
    """Cross entropy of every mark, and the order of the overall and relevant ones."""
    wanted = torch.tensor([item.heads for item in items])[:, PLACES]
    weights = torch.tensor([item.weight for item in items])
    loss = outputs.sum() * 0.0
    for place, name in enumerate(MARKS):
        known = ~wanted[:, place].isnan()
        if known.any():
            each = functional.binary_cross_entropy_with_logits(
                outputs[known, place], wanted[known, place], reduction="none"
            )
            loss = loss + (2.0 if name == "overall" else 1.0) * (each * weights[known]).sum() / weights[known].sum()
    for name, share in (("overall", 0.6), ("relevant", 0.3)):
        place = MARKS.index(name)
        loss = loss + share * training.compute_order_loss(outputs[:, place], wanted[:, place], items)
    return loss


def people_loss(given: Tensor, turns: Sequence[LabelledTurn]) -> Tensor:
    """Pairwise logistic loss over turns of one set, whose ratings alone can be compared.

    They are .3 of the set's standard deviation apart, or more.
    """
    ratings = torch.tensor([turn.rating for turn in turns])
    names = sorted({turn.set_name for turn in turns})
    sets = torch.tensor([names.index(turn.set_name) for turn in turns])
    spread = torch.stack([ratings[sets == number].std(correction=0) for number in range(len(names))])[sets]
    counts = (sets[:, None] == sets[None]) & (ratings[:, None] - ratings[None] > 0.3 * spread[:, None])
    each = functional.softplus(given[None] - given[:, None])
    return (each * counts).sum() / counts.sum().clamp_min(1)


def read_rated(data: Path) -> list[LabelledTurn]:
    """Turns that people rated, or of dialogues that they rated, of sets that are fitted on and may be sold.

    None that a figure is measured on is among them.
    """
    held = {turn.response for turn in read_judged_turns(data, ["choose", "calibrate", "report"])}
    left_out = read_population(data).dialogues
    generator = random.Random(2)
    found = [
        turn
        for name, turns in read_development_sets(data).items()
        for turn in turns
        if name.endswith("(fitted on)") and "thumbs" not in name and not name.startswith(DAILYDIALOG)
    ]
    for name, marks in RATED_DIALOGUES.items():
        for line, row in read_rows(data / name):
            if row.get("set", "ieval") != "ieval" or row.get("split", "train") != "train":
                continue
            ratings = row["ratings"] if isinstance(row["ratings"], list) else [row["ratings"]]
            given = (each.get(mark) for each in ratings for mark in marks or each)
            values = [mark for mark in given if isinstance(mark, (int, float))]  # DSTC9 has "N/A", too
            is_held = f"{name} {line} {line - 1}" in left_out or any(each["text"] in held for each in row["turns"])
            if values and not is_held:
                labels = {"rating": float(np.mean(values))}
                found += [
                    LabelledTurn(context=tuple(context), response=response, labels=labels, set_name=name)
                    for context, response in draw_system_turns(row["turns"], 3, generator)
                ]
    return found


application = typer.Typer(add_completion=False, callback=lambda: None)
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@application.command("train")
def train_teacher(
    encoder: Annotated[str, typer.Argument()],
    data: Annotated[Path, typer.Option()],
    output: Annotated[Path, typer.Option()],
    passes: Annotated[float, typer.Option()] = RECIPE.passes,
    share: Annotated[float, typer.Option()] = 1.0,
    seed: Annotated[int, typer.Option()] = 0,
    device: Device = "cpu",
) -> None:
    """Trains and writes the weights."""
    output.mkdir(parents=True, exist_ok=True)
    steps = training.plan_steps(training.read_material(data, share, 0), replace(RECIPE, passes=passes), seed)
    rated = read_rated(data)
    torch.manual_seed(seed)
    model = Teacher(encoder).to(device)
    training.freeze_lower_layers(model.encoder, 0)
    if bias := getattr(model.encoder.encoder, "relative_attention_bias", None):
        bias.requires_grad_(False)
    layers = model.encoder.encoder.layer
    groups: list[dict[str, Any]] = [
        {"params": [*model.hidden.parameters(), *model.head.parameters()], "lr": 4e-4},
        *(
            {"params": list(layer.parameters()), "lr": 6e-5 * RATE_OF_LOWER_LAYER ** (len(layers) - 1 - number)}
            for number, layer in enumerate(layers)
        ),
    ]
    loop = LoopSettings(
        steps=len(steps), run_key=f"teacher {encoder} {seed} {len(steps)}", warm_up_steps=40, save_every=200,
        description="teacher", weight_decay=0.01, betas=(0.9, 0.98),
    )  # fmt: skip
    average = WeightAverage(0.99, int(len(steps) * 0.6))

    def step_loss(step: int) -> Tensor:
        items = steps[step]
        people = random.Random(step).sample(rated, min(PEOPLE_AT_ONCE, len(rated)))
        turns = [*(item.turn for item in items), *people]
        rows = model.lay_out([(turn.context, turn.response) for turn in turns])
        order = sorted(range(len(rows)), key=lambda place: len(rows[place][0]))
        third = -(-len(order) // 3)  # three widths waste less padding than one
        parts = [model([rows[p] for p in order[start : start + third]]) for start in range(0, len(order), third)]
        found = torch.cat(parts)[torch.tensor(order).argsort()]
        loss = teacher_loss(found[: len(items)], items)
        return loss + 0.5 * people_loss(found[len(items) :, PEOPLE], people) if people else loss

    with torch.device(device):
        train(model, step_loss, loop, groups=groups, state_path=output / "state.pt", follower=average)
    torch.save({"weights": model.cpu().state_dict(), "encoder": encoder}, output / "teacher.pt")


def load_teacher(folder: Path) -> Teacher:
    """What train wrote."""
    saved = torch.load(folder / "teacher.pt", weights_only=True)
    model = Teacher(saved["encoder"])
    model.load_state_dict(saved["weights"])
    return model.eval()


@application.command("mark")
def mark(
    teachers: Annotated[list[Path], typer.Argument()],
    data: Annotated[Path, typer.Option()],
    output: Annotated[Path, typer.Option()],
    people_share: Annotated[float, typer.Option(help="Of what orders as people do, in the overall mark.")] = 0.2,
    older: Annotated[list[Path] | None, typer.Option(help="Checkpoints to mix in, first the one to train on.")] = None,
    older_share: Annotated[list[float] | None, typer.Option(help="Of each; the teachers have the rest.")] = None,
    turns: Annotated[
        int, typer.Option(help="Contexts, half people's and half systems'; turns are thrice as many.")
    ] = 42_000,
    device: Device = "cpu",
) -> None:
    """Writes turns with the marks that teachers and older heads give them together."""
    if len(older or []) != len(older_share or []):
        raise typer.BadParameter("give one for each --older", param_hint="--older-share")
    shares = list(zip(older or [], older_share or [], strict=True))
    asked = draw_turns(data, turns)
    typer.echo(f"{len(asked)} turns")
    with torch.device(device):
        each_marks = [load_teacher(each).to(device).mark(asked).cpu() for each in teachers]
    marks, center, spread = _standardize(torch.stack(each_marks).mean(0))
    people = marks[:, PEOPLE].clone()
    marks, center, spread = marks[:, :PEOPLE], center[:PEOPLE], spread[:PEOPLE]
    mixed = (1 - sum(share for _, share in shares)) * marks
    mixed[:, MARKS.index("overall")] += people_share * (people - marks[:, MARKS.index("overall")])
    others = torch.zeros(len(asked), 2)
    for folder, share in shares:
        model, encoder = load_model(folder)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            heads = torch.from_numpy(score_heads(model, encoder, asked)).float()
        logits, own_center, own_spread = _standardize(heads[:, PLACES].clamp(1e-4, 1 - 1e-4).logit())
        if folder == shares[0][0]:  # what goes on learning keeps its scale
            center, spread = own_center, own_spread
        mixed = mixed + share * logits
        others += heads[:, [SENTIMENT, CONTINUES]] / len(shares)
    values = (center + spread * _standardize(mixed)[0]).sigmoid()
    with output.open("w", encoding="utf-8") as file:
        for (context, response), row, other in zip(asked, values.tolist(), others.tolist(), strict=True):
            known = dict(
                zip((*MARKS, "sentiment", "continues"), (round(each, 4) for each in (*row, *other)), strict=True)
            )
            file.write(json.dumps({"context": context, "response": response, "marks": known}) + "\n")


def _standardize(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Columns with mean 0 and deviation 1, and the means and deviations that they had."""
    center, spread = values.mean(0), values.std(0).clamp_min(1e-6)
    return (values - center) / spread, center, spread


def draw_turns(data: Path, count: int) -> list[Asked]:
    """Turns that nobody judged, of dialogues that no figure is measured on; those of one context follow each other.

    Beside what was said stand responses to like turns and responses of like words, both of other dialogues, as systems
    that retrieve would give; to people's turns at times a made-up one. And turns of `ieval` that are trained on.
    """
    people, bots = training.read_spoken(data, 1)
    generator = random.Random(1)
    found: list[Asked] = []
    for turns, share, pieces in ((people, 0.5, True), (bots, 0.5, False)):
        kept = [turn for turn in turns if turn.context and 1 < len(turn.response.split()) < 60]
        asked = generator.sample(range(len(kept)), min(int(count * share), len(kept)))
        by_context = find_alike([turn.context[-1][1] for turn in kept], asked)
        by_response = find_alike([turn.response for turn in kept], asked) if pieces else by_context
        made = Negatives(kept) if pieces else None
        for place, contexts, responses in zip(asked, by_context, by_response, strict=True):
            own = kept[place]
            others = [contexts, responses] if pieces else [contexts]
            choices = [[each for each in near if kept[each].dialogue != own.dialogue] for near in others]
            texts = [own.response, *(kept[generator.choice(each)].response for each in choices if each)]
            if made is not None and generator.random() < 0.3:
                kinds = [NegativeKind.SAME_DIALOGUE, NegativeKind.WRONG_MOOD, NegativeKind.DULL, NegativeKind.REPEAT]
                texts.append(made.make(place, generator.choice(kinds), generator) or "")
            found += [(own.context, text) for text in dict.fromkeys(texts) if text]
    return found + draw_empathetic(data, count // 8, generator)


def find_alike(texts: Sequence[str], asked: Sequence[int], nearest: int = 8) -> list[list[int]]:
    """For each asked text the places of those that share most of its rarer words, itself and equal ones left out."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32).fit_transform(texts)
    found: list[list[int]] = []
    for start in range(0, len(asked), 500):
        places = list(asked[start : start + 500])
        alike = (vectors[places] @ vectors.T).tocsr()
        for row, place in enumerate(places):
            own = alike[row]
            order = own.indices[np.argsort(-own.data)]
            found.append([int(each) for each in order[: nearest * 4] if texts[each] != texts[place]][:nearest])
    return found


def draw_system_turns(said: Sequence[Mapping[str, Any]], count: int, generator: random.Random) -> list[Asked]:
    """So many turns of the system, at most, each with the four before it."""
    places = [
        place
        for place in range(1, len(said))
        if said[place]["speaker"] not in (USER, "human") and said[place]["text"].strip()
        if not any(each.get("held_back") for each in said[place - 1 : place + 1])
    ]
    return [
        ([(each["speaker"], each["text"]) for each in said[max(0, place - 4) : place]], said[place]["text"])
        for place in generator.sample(places, min(count, len(places)))
    ]


def draw_empathetic(data: Path, count: int, generator: random.Random) -> list[Asked]:
    """System turns of dialogues of `ieval` that may be trained on."""
    rows = [
        row
        for _, row in read_rows(data / "dialogue_feedback.jsonl.gz")
        if row["set"] == "ieval" and row["split"] == "train"
    ]
    chosen = generator.sample(rows, min(len(rows), count))
    return [turn for row in chosen for turn in draw_system_turns(row["turns"], 3, generator)]


if __name__ == "__main__":
    application()
