"""Makes the hidden layer of quality's heads narrow, on the features of the served int8 encoder.

    python experiments/quality_heads.py BUNDLE/ --data DATA --version 2.4.0 --output NEW

The encoder stays byte for byte, and so does every bundle of heads that shares it. The hidden layer becomes a product of
two, of rank 160: a third of the weights, which are read from memory for every reply. They start from the principal
components of what the older layer gives, and learn the older heads' answers to judged turns, drills and garbled
responses. Renew value, percentiles and thresholds afterwards (quality_bundle.py).
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.data.dialogues import MODERN_FILE, TURNS_FILE, LabelledTurn, read_judged_turns
from turnscore_core.scorers.quality import HEADS
from turnscore_exporters.bundles.self_test import start_version
from turnscore_exporters.bundles.writer import MIN_PARITY_TURNS
from turnscore_exporters.criterion.judgements import FeatureReader
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.bundle import read_heads, write_head_set
from turnscore_exporters.quality.drills import make_filler, make_moods, make_short_answers
from turnscore_models.bundle import Bundle, sha256_of, write_bundle
from turnscore_models.manifest import BundleError
from turnscore_models.store import resolve

RANK, BATCH, EPOCHS, RATE, DECAY, WARM_UP = 160, 128, 5, 4e-4, 0.01, 100
SHORT_ANSWERS, MOODS, FILLERS, GARBLED = 2200, 400, 1500, 3000
COMPONENTS_FROM = 6000  # turns
LETTERS = "asdfghjklqwertyuiop"
SENTIMENT = HEADS.index("sentiment")
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
        self.slope = nn.Parameter(torch.zeros(()))
        self.load_state_dict({name: stored[name] for name in self.state_dict()})
        self.similar, self.cosine = similar, COSINE * ((columns - 6) // 11)

    def answer(self, features: Tensor) -> Tensor:
        """Outputs [turns, heads] before the sigmoid."""
        found: Tensor = self.head(functional.gelu(self.hide(features)))
        return (found + self.slope * features[:, self.cosine : self.cosine + 1] * self.similar)[:, : len(HEADS)]

    def hide(self, features: Tensor) -> Tensor:
        """What the hidden layer gives, before its activation."""
        found: Tensor = self.hidden(features)
        return found

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """float32 [turns] of each head: probabilities, and the sentiment as it is."""
        found = self.answer(features)
        return tuple(
            found[:, place] if place == SENTIMENT else found[:, place].sigmoid() for place in range(len(HEADS))
        )


class NarrowHeads(ServedHeads):
    """Heads whose hidden layer is a product of two."""

    def __init__(self, older: ServedHeads, features: Tensor) -> None:
        """Starts from the principal components of what the older heads' hidden layer gives for these features."""
        nn.Module.__init__(self)
        wide, mean = older.hidden.weight, features.mean(0)
        _, _, components = torch.linalg.svd((features - mean) @ wide.T, full_matrices=False)
        axes = components[:RANK]
        self.narrow, self.hidden = nn.Linear(wide.shape[1], RANK), nn.Linear(RANK, len(wide))
        self.head, self.slope = older.head, older.slope
        self.similar, self.cosine = older.similar, older.cosine
        self.narrow.load_state_dict({"weight": axes @ wide, "bias": torch.zeros(RANK)})
        left_out = wide @ mean - axes.T @ (axes @ (wide @ mean))
        self.hidden.load_state_dict({"weight": axes.T, "bias": older.hidden.bias + left_out})

    def hide(self, features: Tensor) -> Tensor:
        found: Tensor = self.hidden(self.narrow(features))
        return found


def garble(turns: Sequence[LabelledTurn]) -> list[LabelledTurn]:
    """Responses with their words in disorder, one of their words again and again, or letters at random."""
    chance = random.Random(5)
    made = []
    for turn in chance.sample([turn for turn in turns if len(turn.response.split()) >= 4], GARBLED):
        words, kind = turn.response.split(), chance.random()
        if kind < 0.6:
            chance.shuffle(words)
        elif kind < 0.8:
            words = [chance.choice(words)] * chance.randint(3, 6)
        else:
            words = ["".join(chance.choices(LETTERS, k=chance.randint(3, 6))) for _ in range(chance.randint(2, 6))]
        made.append(replace(turn, response=" ".join(words)))
    return made


def answer_all(heads: ServedHeads, features: Tensor) -> Tensor:
    """Outputs [turns, heads] before the sigmoid."""
    with torch.no_grad():
        return torch.cat([heads.answer(part.float()) for part in features.split(BATCH)])


def train(heads: ServedHeads, features: Tensor, wanted: Tensor) -> None:
    """Trains in place to give these outputs [turns, heads]; to the mean of the last quarter's weights."""
    own = list(heads.parameters())
    mean, count = [torch.zeros_like(each) for each in own], 0
    optimizer = torch.optim.AdamW(own, lr=RATE, weight_decay=DECAY)
    steps = EPOCHS * (len(features) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1, (at + 1) / WARM_UP) * (1 - at / steps))
    for step in range(steps):
        place = step % (steps // EPOCHS)
        if place == 0:
            drawn = torch.randperm(len(features)).split(BATCH)
        batch = drawn[place]
        optimizer.zero_grad()
        functional.mse_loss(heads.answer(features[batch].float()), wanted[batch]).backward()
        optimizer.step()
        schedule.step()
        if step >= steps * 3 // 4:
            count += 1
            for kept, weight in zip(mean, own, strict=True):
                kept += (weight.detach() - kept) / count
    with torch.no_grad():
        for weight, kept in zip(own, mean, strict=True):
            weight.copy_(kept)


def make_drills(judged: Sequence[LabelledTurn]) -> list[LabelledTurn]:
    """Short right answers beside wrong ones, moods, fillers after judged contexts, and garbled responses."""
    chance = random.Random(11)
    made = [turn for _ in range(SHORT_ANSWERS) for turn in make_short_answers(chance)]
    made += [turn for _ in range(MOODS) for turn in make_moods(chance)]
    made += [turn for each in chance.sample(judged, FILLERS) if (turn := make_filler(each.context, chance))]
    return [*{(turn.context, turn.response): turn for turn in made}.values(), *garble(judged)]


def renew_heads(older: Bundle, data: Path, version: str, output: Path) -> Bundle:
    """Writes the bundle with new heads as that version into the empty or missing folder `output`."""
    for missing in (name for name in (MODERN_FILE, TURNS_FILE) if not (data / name).exists()):
        raise ExporterError(f"{data / missing}: is not there")
    judged = read_judged_turns(data, ["train"])
    drills = make_drills(judged)
    copied = start_version(older, version, output)
    features = torch.from_numpy(FeatureReader(copied, Path("build/features")).read([*judged, *drills])).half()
    spec = copied.manifest.heads["quality"]
    wide = ServedHeads(copied.path_of(spec.file))
    answers = answer_all(wide, features)
    torch.manual_seed(0)
    with torch.no_grad():
        heads = NarrowHeads(wide, features[torch.randperm(len(features))[:COMPONENTS_FROM]].float())
    train(heads, features, answers)
    file = copied.path_of(spec.file)
    parity = write_head_set(heads, HEADS, features[:MIN_PARITY_TURNS].float(), file)
    renewed = spec.model_copy(update={"sha256": sha256_of(file), "parity_measured": parity})
    trained = {"from": older.manifest.reference, "rank": RANK, "judged": len(judged), "drills": len(drills)}
    trained |= {"epochs": EPOCHS, "learning rate": RATE}
    manifest = copied.manifest.model_copy(
        update={
            "version": version,
            "heads": {**copied.manifest.heads, "quality": renewed},
            "training": {**copied.manifest.training, "narrow_heads": trained},
        }
    )
    return write_bundle(output, manifest)


def main(
    bundle: Annotated[str, typer.Argument(help="A bundle of quality: its folder (with a /), or its name.")],
    data: Annotated[Path, typer.Option(help="Folder with the judged turns.")],
    version: Annotated[str, typer.Option(help="Version of the new bundle.")],
    output: Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")],
) -> None:
    """Write the bundle with narrow heads; renew its value, percentiles and thresholds next."""
    with reported_errors(ExporterError, BundleError):
        made = renew_heads(resolve(bundle), data, version, output)
    typer.echo(f"{made.manifest.reference} written to {output}")


if __name__ == "__main__":
    typer.run(main)
