"""`train criterion --deep`: the layers in which a response attends to its context, trained for one criterion.

What the encoder reads of each text alone stays as it is, and is shared. While the layers are trained, so do the weights
of a linear head, and each turn starts from what a head said of it that saw nothing of its dialogue: what is left to
learn is what such a head misses, not what it knows already. Then the head is fitted again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Flags, Floats, Integers
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers import quality

from turnscore_exporters.bundles.self_test import open_examined
from turnscore_exporters.bundles.writer import MIN_PARITY_TURNS
from turnscore_exporters.criterion.judgements import MARK, TRAIN, Features, Judgements
from turnscore_exporters.criterion.learning import RidgeHead, fit_head
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.int8 import ZERO_POINT
from turnscore_exporters.quality.bundle import GRAPH, KEPT
from turnscore_exporters.quality.dequantize import read_joint_layers, write_joint_layers
from turnscore_exporters.quality.model import TURNS_AT_ONCE, JointLayers, group_by_width
from turnscore_exporters.training.encoders import chunks
from turnscore_exporters.training.loop import BestWeights, LoopSettings, choose_batch, train


@dataclass(frozen=True, kw_only=True)
class DeepRecipe:
    """How the layers are trained. Chosen on dialogues of abc-eval's and mrbench's part `train`."""

    epochs: int = 4
    batch: int = 32
    learning_rate: float = 1e-4
    left_out: int = 5  # One of so many dialogues is not trained on: they say which weights are the best.
    looks: int = 4  # How often they are asked.


RECIPE = DeepRecipe()
READ_AT_ONCE = 32
DRAWS = 20  # Of dialogues to leave out. Chosen: enough where a handful of dialogues have the rarer mark.


class ReadTurns:
    """What the encoder's first graph gives for turns as it serves them; takes about 75 kB of memory for a turn."""

    def __init__(self, loaded: LoadedScorer, turns: Sequence[LabelledTurn]) -> None:
        """Raises ExporterError where the bundle has no int8 graph cut in two."""
        spec = loaded.bundle.manifest.graphs[loaded.variant]
        if loaded.variant != GRAPH or spec.joint is None:
            raise ExporterError(f"--deep needs graph {GRAPH}, but {loaded.model} does not contain it")
        self.joint_file = loaded.bundle.path_of(spec.joint.file)
        packs = loaded.scorer.encode([loaded.scorer.trim(each.to_score()) for each in turns])
        self.turns = [cast("quality.TurnRows", pack.structure) for pack in packs]
        self._pad_id = TextTokenizer.of(loaded.bundle.path_of(loaded.bundle.manifest.tokenizer)).pad_id
        self._longest = (
            quality.QualityOptions.model_validate(loaded.bundle.manifest.options).layout.turn_tokens + quality.ROW_MARKS
        )
        self._first = open_examined(loaded.bundle, loaded.variant, usable_cpus())
        self._encoder = self._open(self.joint_file)
        self._encoder.kept = VectorStore().of(loaded.bundle.digest)
        self._vectors: quality.ReadVectors = {quality.RESPONSE: {}, quality.CONTEXT: {}}
        for batch in chunks(self.turns, READ_AT_ONCE):
            for role, found in self._encoder.read(batch).items():
                self._vectors[role] |= found

    def compute_features(self, joint_file: Path) -> Features:
        """The features [turns, columns] of that second graph, to the bit those that are served."""
        encoder = self._open(joint_file)
        order = sorted(range(len(self.turns)), key=lambda place: len(self.turns[place].response))
        found = np.concatenate(
            [encoder.run(*self._take([self.turns[place] for place in own])) for own in chunks(order, READ_AT_ONCE)]
        )
        return cast("Features", found[np.argsort(order)])

    def attend(self, layers: JointLayers, places: Sequence[int], smoothing: Sequence[Tensor]) -> Tensor:
        """The joint vectors [places, columns] that these layers give for the turns at some places."""
        found, order = [], []
        for own in group_by_width([self.turns[place].response for place in places]):
            given = self._encoder.prepare(*self._take([self.turns[places[each]] for each in own]))
            fed = {name: torch.from_numpy(array) for name, array in given.items()}
            lower, upper = (
                (fed[f"{name}_values"].float() - ZERO_POINT) * fed[f"{name}_scales"] / factors
                for name, factors in zip(KEPT, smoothing, strict=True)
            )
            response, mask = fed["response_lower"], fed["response_mask"]
            found.append(layers.attend(response, mask, (lower, upper), fed["context_tokens"], fed["places"]))
            order += own
        return torch.cat(found)[torch.tensor(order).argsort()]

    def _open(self, joint_file: Path) -> quality.SplitEncoder:
        return quality.SplitEncoder(self._first, self._first.open_part(joint_file), self._pad_id, self._longest)

    def _take(self, turns: Sequence[quality.TurnRows]) -> tuple[Sequence[quality.TurnRows], quality.ReadVectors]:
        responses, context = self._vectors[quality.RESPONSE], self._vectors[quality.CONTEXT]
        return turns, {
            quality.RESPONSE: {turn.response: responses[turn.response] for turn in turns},
            quality.CONTEXT: {row: context[row] for turn in turns for row in turn.context},
        }


@dataclass(frozen=True, kw_only=True)
class DeepFeatures:
    """Features [turns, columns] that trained layers give, and the file of their graph.

    `is_left_out` says of each turn that was trained on whether only the choice of the weights saw its dialogue.
    `unrounded` are joint vectors [some turns, columns] of the layers before their weights were rounded to int8.
    """

    joint_file: Path
    features: Features
    is_left_out: Flags
    unrounded: Floats
    recipe: dict[str, JsonValue] = field(default_factory=dict)

    def measure_parity(self, head: RidgeHead, slope: float, bias: float) -> dict[str, float]:
        """How far int8 takes the values of turns from those of the layers."""
        turns, columns = self.unrounded.shape
        served = self.features[:turns].astype(np.float64)
        before = np.hstack([served[:, :-columns], self.unrounded])
        values, expected = (1 / (1 + np.exp(-(head.predict(each) * slope + bias))) for each in (served, before))
        missed = np.abs(values - expected)
        figures = {"turns": turns, "max_abs": missed.max(), "mean_abs": missed.mean()}
        return {name: round(float(value), 7) for name, value in figures.items()}


def train_deep(loaded: LoadedScorer, judged: Judgements, features: Features, folder: Path) -> DeepFeatures:
    """The features by layers trained on the part `train`, but for a few dialogues; `features` are those without.

    Goes on where an interrupted run stopped: its state and its graph stay in the folder.
    """
    recipe, read = RECIPE, ReadTurns(loaded, judged.turns)
    trained = np.flatnonzero(judged.part(TRAIN))
    marks, dialogue_of = judged.wanted[trained], judged.dialogue_of[trained]
    left_out = choose_left_out(dialogue_of, marks, recipe.left_out)
    said = [(each.context, each.response, each.split, each.labels[MARK]) for each in judged.turns]
    key = hashlib.sha256(repr((asdict(recipe), loaded.pass_key, said)).encode()).hexdigest()[:32]
    layers, factors = read_joint_layers(read.joint_file)
    smoothing = [torch.from_numpy(each.copy()) for each in factors]
    columns = 2 * len(smoothing[0])
    rest = features[trained, :-columns].astype(np.float64)

    def attend(places: Sequence[int]) -> Floats:
        with torch.no_grad():
            parts = [read.attend(layers, each, smoothing) for each in chunks(places, TURNS_AT_ONCE)]
        return torch.cat(parts).double().numpy()

    def fit(joint: Floats) -> tuple[RidgeHead, Floats]:
        """A head for the dialogues that are trained on, and what it says of the others."""
        rows = np.hstack([rest, joint])
        head = fit_head(rows[~left_out], marks[~left_out], dialogue_of[~left_out])
        return head, head.predict(rows[left_out])

    def agree() -> float:
        return float(np.corrcoef(fit(attend(trained.tolist()))[1], marks[left_out])[0, 1])

    start, _ = fit(features[trained, -columns:].astype(np.float64))
    weights = torch.from_numpy(start.weights[-columns:].astype(np.float32))
    fixed, wanted = np.zeros((2, len(judged.turns)), np.float32)
    fixed[trained[~left_out]] = start.crossed - features[trained[~left_out], -columns:] @ start.weights[-columns:]
    wanted[trained] = marks
    fitted = trained[~left_out].tolist()
    steps = recipe.epochs * -(-len(fitted) // recipe.batch)
    best = BestWeights(agree, steps, recipe.looks)
    loop = LoopSettings(
        steps=steps,
        run_key=key,
        warm_up_steps=min(20, steps // 2),
        save_every=10,
        description="upper layers",
        learning_rate=recipe.learning_rate,
        betas=(0.9, 0.98),
    )

    def step_loss(step: int) -> Tensor:
        places = [fitted[each] for each in choose_batch(len(fitted), recipe.batch, step)]
        predicted = torch.from_numpy(fixed[places]) + read.attend(layers, places, smoothing) @ weights
        return ((predicted - torch.from_numpy(wanted[places])) ** 2).mean() / float(marks.var())

    torch.use_deterministic_algorithms(True)  # else the gradients of equal tokens are added in any order
    try:
        train(layers, step_loss, loop, state_path=folder / f"deep-{key}.pt", follower=best)
    finally:
        torch.use_deterministic_algorithms(False)
    joint_file = folder / f"deep-{key}.onnx"
    write_joint_layers(layers, read.joint_file, joint_file)
    return DeepFeatures(
        joint_file=joint_file,
        features=read.compute_features(joint_file),
        is_left_out=left_out,
        unrounded=attend(range(min(MIN_PARITY_TURNS, len(judged.turns)))),
        recipe={**asdict(recipe), "best_step": int(best.found["step"])},
    )


def read_deep(loaded: LoadedScorer, deep: DeepFeatures, turns: Sequence[LabelledTurn]) -> Features:
    """The features of other turns by the trained layers."""
    return ReadTurns(loaded, turns).compute_features(deep.joint_file)


def choose_left_out(dialogue_of: Integers, marks: Floats, one_of: int) -> Flags:
    """Which turns are of the dialogues that are not trained on: one of so many, so that marks differ in both parts.

    Raises ExporterError where no draw does that.
    """
    for seed in range(DRAWS):
        drawn = np.random.default_rng(seed).permutation(int(dialogue_of.max()) + 1)
        found: Flags = drawn[dialogue_of] % one_of == 0
        if all(len(np.unique(each)) > 1 for each in (marks[found], marks[~found])):
            return found
    raise ExporterError("--deep cannot be used: the marks differ within too few dialogues")
