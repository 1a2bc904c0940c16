"""Trains quality's heads again on the features of the served int8 encoder, on a teacher's marks and on judged turns.

    python experiments/quality_heads.py BUNDLE/ --data DATA --marks MARKS.jsonl --version 2.3.0 --output NEW

The encoder stays byte for byte, and so does every bundle of heads that shares it. The heads were trained on the
features of a checkpoint that goes on changing, and before its rounding to int8; here the features are final. Trained
twice, the second time with garbled responses, which teachers rarely saw; the mean of both is written. Renew value,
percentiles and thresholds afterwards (quality_bundle.py).
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.data.dialogues import MODERN_FILE, TURNS_FILE, LabelledTurn, read_judged_contexts
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.quality import HEADS, QualityScorer
from turnscore_exporters.bundles.self_test import start_version
from turnscore_exporters.bundles.writer import MIN_PARITY_TURNS, PACKS_AT_ONCE
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.bundle import write_head_set
from turnscore_exporters.quality.dequantize import read_heads
from turnscore_exporters.quality.job import read_marked_turns
from turnscore_exporters.training.encoders import chunks
from turnscore_models import Bundle, BundleError, write_bundle
from turnscore_models.bundle import sha256_of
from turnscore_models.store import resolve

BATCH, DECAY, DROPOUT, JUDGED_WEIGHT, SENTIMENT_WEIGHT = 128, 0.02, 0.1, 0.3, 2.0
FIRST, SECOND = (6, 3e-4), (2, 1.5e-4)  # epochs and learning rate
GARBLED, TIMES = 3000, 2  # made-up responses, and how often each is read in an epoch
LETTERS = "asdfghjklqwertyuiop"
SENTIMENT = HEADS.index("sentiment")
PROBABILITIES = [place for place in range(len(HEADS)) if place != SENTIMENT]
COSINE = 9  # times the encoder's width: where the features have the similarity of response and last turn


class ServedHeads(nn.Module):
    """Quality's heads, from their graph."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        stored = {name: torch.from_numpy(value.copy()) for name, value in read_heads(file).items()}
        [similar] = [
            value for name, value in stored.items() if name.startswith("/") and value.shape == (len(HEADS) + 1,)
        ]
        units, columns = stored["hidden.weight"].shape
        self.hidden, self.head = nn.Linear(columns, units), nn.Linear(units, len(similar))
        self.slope, self.dropout = nn.Parameter(torch.zeros(())), nn.Dropout(DROPOUT)
        self.load_state_dict({name: stored[name] for name in self.state_dict()})
        self.similar, self.cosine = similar, COSINE * ((columns - 6) // 11)

    def answer(self, features: Tensor) -> Tensor:
        """Outputs [turns, heads] before the sigmoid."""
        found: Tensor = self.head(self.dropout(functional.gelu(self.hidden(self.dropout(features)))))
        return (found + self.slope * features[:, self.cosine : self.cosine + 1] * self.similar)[:, : len(HEADS)]

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """float32 [turns] of each head: probabilities, and the sentiment as it is."""
        found = self.answer(features)
        return tuple(
            found[:, place] if place == SENTIMENT else found[:, place].sigmoid() for place in range(len(HEADS))
        )


def read_features(bundle: Bundle, turns: Sequence[LabelledTurn]) -> Tensor:
    """Features [turns, columns] of the served graph, as fp16."""
    loaded = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
    scorer = cast("QualityScorer", loaded.scorer)
    packs = scorer.encode([loaded.trim(make_turn(turn.context, turn.response)) for turn in turns])
    packs.sort(key=lambda pack: pack.width)
    found = np.concatenate([scorer.compute_features(each).astype(np.float16) for each in chunks(packs, PACKS_AT_ONCE)])
    return torch.from_numpy(found[np.argsort([pack.answers[0] for pack in packs])])


def garble(turns: Sequence[LabelledTurn]) -> list[LabelledTurn]:
    """Good responses with their words in disorder, one of their words again and again, or letters at random."""
    chance = random.Random(5)
    good = [turn for turn in turns if turn.labels.get("overall", 0) > 0.4 and len(turn.response.split()) >= 4]
    made = []
    for turn in chance.sample(good, GARBLED):
        words, kind = turn.response.split(), chance.random()
        labels = {"fluent": 0.0, "engaging": 0.05, "overall": 0.1}
        if kind < 0.6:
            chance.shuffle(words)
        elif kind < 0.8:
            words, labels = (
                [chance.choice(words)] * chance.randint(3, 6),
                {"fluent": 0.1, "engaging": 0, "overall": 0.06},
            )
        else:
            words = ["".join(chance.choices(LETTERS, k=chance.randint(3, 6))) for _ in range(chance.randint(2, 6))]
            labels = {"relevant": 0.05, "fluent": 0.0, "engaging": 0.0, "overall": 0.03}
        made.append(replace(turn, response=" ".join(words), labels=labels))
    return made


def train(
    heads: ServedHeads, features: Tensor, wanted: Tensor, weights: Tensor, epochs: int, learning_rate: float
) -> None:
    """Trains in place on labels [turns, heads], nan where unknown; to the mean of the latter half's weights."""
    torch.manual_seed(0)
    known = (~wanted.isnan()) * weights[:, None]
    wanted = wanted.nan_to_num()
    own = list(heads.parameters())
    mean, count = [torch.zeros_like(each) for each in own], 0
    optimizer = torch.optim.AdamW(own, lr=learning_rate, weight_decay=DECAY)
    steps = epochs * (len(features) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1, (at + 1) / 100) * (1 - at / steps))
    heads.train()
    for step in range(steps):
        place = step % (steps // epochs)
        if place == 0:
            drawn = torch.randperm(len(features)).split(BATCH)
        batch = drawn[place]
        found, labels, counts = heads.answer(features[batch].float()), wanted[batch], known[batch]
        crossed = functional.binary_cross_entropy_with_logits(
            found[:, PROBABILITIES], labels[:, PROBABILITIES], reduction="none"
        )
        missed = (found[:, SENTIMENT] - labels[:, SENTIMENT]) ** 2 * counts[:, SENTIMENT]
        optimizer.zero_grad()
        ((crossed * counts[:, PROBABILITIES]).sum(1).mean() + SENTIMENT_WEIGHT * missed.mean()).backward()
        optimizer.step()
        schedule.step()
        if step >= steps // 2:
            count += 1
            for kept, weight in zip(mean, own, strict=True):
                kept += (weight.detach() - kept) / count
    with torch.no_grad():
        for weight, kept in zip(own, mean, strict=True):
            weight.copy_(kept)
    heads.eval()


def renew_heads(older: Bundle, data: Path, marks: Path, version: str, output: Path) -> Bundle:
    """Writes the bundle with new heads as that version into the empty or missing folder `output`."""
    marked = list(read_marked_turns(marks))
    judged = [
        turn
        for file in (TURNS_FILE, MODERN_FILE)
        for row in read_judged_contexts(data / file)
        for turn in row
        if turn.split == "train"
    ]
    turns = [*marked, *judged]
    copied = start_version(older, version, output)
    made = garble(marked)
    features = read_features(copied, [*turns, *made])
    wanted = torch.tensor([[turn.labels.get(name, float("nan")) for name in HEADS] for turn in [*turns, *made]])
    weights = torch.tensor([1.0] * len(marked) + [JUDGED_WEIGHT] * len(judged) + [1.0] * len(made))
    spec = copied.manifest.heads["quality"]
    heads = ServedHeads(copied.path_of(spec.file))
    count = len(turns)
    train(heads, features[:count], wanted[:count], weights[:count], *FIRST)
    first = {name: each.clone() for name, each in heads.state_dict().items()}
    read = [*range(count), *(list(range(count, len(wanted))) * TIMES)]
    train(heads, features[read], wanted[read], weights[read], *SECOND)
    heads.load_state_dict({name: (each + first[name]) / 2 for name, each in heads.state_dict().items()})
    file = copied.path_of(spec.file)
    parity = write_head_set(heads, HEADS, features[:MIN_PARITY_TURNS].float(), file)
    renewed = spec.model_copy(update={"sha256": sha256_of(file), "parity_measured": parity})
    trained = {"marked": len(marked), "judged": len(judged), "garbled": len(made), "stages": [*FIRST, *SECOND]}
    manifest = copied.manifest.model_copy(
        update={
            "version": version,
            "heads": {**copied.manifest.heads, "quality": renewed},
            "training": {**copied.manifest.training, "heads_on_served_features": trained},
        }
    )
    return write_bundle(output, manifest)


def main(
    bundle: Annotated[str, typer.Argument(help="A bundle of quality: its folder (with a /), or its name.")],
    data: Annotated[Path, typer.Option(help="Folder with the judged turns.")],
    marks: Annotated[Path, typer.Option(help="Turns that a teacher marked (quality_teacher.py).")],
    version: Annotated[str, typer.Option(help="Version of the new bundle.")],
    output: Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")],
) -> None:
    """Write the bundle with heads that were trained again; renew its value, percentiles and thresholds next."""
    with reported_errors(ExporterError, BundleError):
        made = renew_heads(resolve(bundle), data, marks, version, output)
    typer.echo(f"{made.manifest.reference} written to {output}")


if __name__ == "__main__":
    typer.run(main)
