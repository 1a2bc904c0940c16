"""Ablation: what each kind of made-up responses is worth, at a small scale.

One short training with all kinds for each seed, and one without each kind; nothing but the kinds differs. Each is
measured on the development sets, and on whether it separates made-up responses of the kind from real ones in dialogues
that it has not seen. A run that was measured before is read, so that an interrupted command goes on. With `--frozen`
the heads alone learn, over the encoder as it came.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import typer
from turnscore_assessment.agreement.statistics import compute_auc
from turnscore_assessment.data.development_sets import ADVERSARIAL_FILE, DBDC3_FILE, RATINGS_FILE
from turnscore_assessment.data.rated_turns import DAILYDIALOG, RatedTurn, read_dbdc3, read_rated_turns

from turnscore_exporters.quality.ablation.frozen import learn_heads
from turnscore_exporters.quality.ablation.page import RunFigures
from turnscore_exporters.quality.development import (
    VALUE,
    measure_adversarial,
    measure_set,
    score_heads,
    score_texts,
)
from turnscore_exporters.quality.examples import ExampleRecipe
from turnscore_exporters.quality.finish import fit_formula
from turnscore_exporters.quality.job import QualityJob, learn_parts
from turnscore_exporters.quality.model import HEADS, QualityModel, QualitySettings
from turnscore_exporters.quality.negatives import SHARES, NegativeKind
from turnscore_exporters.quality.preparation import (
    Material,
    Preparation,
    gather_material,
    read_spoken_turns,
    write_parts,
)
from turnscore_exporters.quality.rated_training import read_fitted_turns
from turnscore_exporters.quality.row_vectors import RowVectors
from turnscore_exporters.quality.spoken_turns import SpokenTurn
from turnscore_exporters.quality.training import QualityRecipe
from turnscore_exporters.quality.value import ValueFormula
from turnscore_exporters.training.encoders import Encoder

POOL = 5
"""Turns are drawn from a pool so many times as large as the share trained on: a near miss needs many to choose from."""
UNSEEN_SHARE = 0.1
"""Of the pool's dialogues, kept to make the responses that the kinds are separated by."""
TOLD_APART = 100
"""Made-up responses of each kind for that: an area under the curve is known to some .04. Chosen."""
DBDC3_STEP, CONTEXTS = 3, 75
"""Every third judged turn of DBDC3, and contexts of adversarial responses a split: enough here. Chosen."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What the command line says."""

    data: Path
    output: Path
    scale: float
    seeds: int
    encoder: str = "minilm-l6"
    teacher: str = "engagement"
    kinds: Sequence[NegativeKind] = tuple(NegativeKind)
    """That are left out in turn."""
    told_apart: int = TOLD_APART
    frozen: bool = False
    """The encoder stays as it came."""


@dataclass(frozen=True)
class Run:
    """One training: without a kind, or with all."""

    without: NegativeKind | None
    seed: int

    @property
    def name(self) -> str:
        return f"{'all' if self.without is None else f'without-{self.without}'}-{self.seed}"


Spoilt = Mapping[NegativeKind, Sequence[tuple[SpokenTurn, str]]]
"""By kind, unseen turns with the response that was made for each."""


def run_ablation(job: Ablation) -> list[RunFigures]:
    """The figures of every run, in order; each is kept in the output folder once it is measured."""
    torch.set_num_threads(1)
    runs = [Run(None, seed) for seed in range(job.seeds)] + [Run(kind, 0) for kind in job.kinds]
    job.output.mkdir(parents=True, exist_ok=True)
    files = [job.output / f"{run.name}.json" for run in runs]
    if not all(file.exists() for file in files):
        material, spoilt = _gather(job)
        sets, vectors = read_measured_sets(job.data), RowVectors()
        for run, file in zip(runs, files, strict=True):
            if not file.exists():
                model, encoder, formula = _train(job, run, material, vectors)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    figures = _measure(job, model, encoder, formula, sets, spoilt)
                file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
                typer.echo(f"{run.name}: {figures}", err=True)
    return [
        RunFigures(run.without, run.seed, json.loads(file.read_text(encoding="utf-8")))
        for run, file in zip(runs, files, strict=True)
    ]


def _prepared(job: Ablation) -> Preparation:
    usual = Preparation(encoder=job.encoder, teacher=job.teacher)
    small, pool = usual.scaled(job.scale), usual.scaled(min(1.0, POOL * job.scale))
    return replace(small, sources=pool.sources)


def _gather(job: Ablation) -> tuple[Material, Spoilt]:
    """What is trained on, and the made-up responses of dialogues that are not."""
    people, bots = read_spoken_turns(job.data, _prepared(job))
    names = sorted({turn.dialogue for turn in people})
    unseen = set(random.Random(0).sample(names, max(1, int(UNSEEN_SHARE * len(names)))))  # noqa: S311
    kept = [turn for turn in people if turn.dialogue not in unseen]
    held = [turn for turn in people if turn.dialogue in unseen]
    made = gather_material(held, [], _prepared(job))
    bots = [turn for turn in bots if turn.dialogue not in unseen]
    return gather_material(kept, bots, _prepared(job)), _spoil(made, job.told_apart)


def _spoil(material: Material, count: int) -> Spoilt:
    generator = random.Random(0)  # noqa: S311
    spoilt: dict[NegativeKind, list[tuple[SpokenTurn, str]]] = {}
    for kind in NegativeKind:
        spoilt[kind] = []
        for index in generator.sample(range(len(material.people)), len(material.people)):
            response = material.negatives.make(index, kind, generator)
            if response is not None and len(spoilt[kind]) < count:
                spoilt[kind].append((material.people[index], response))
    return spoilt


def read_measured_sets(folder: Path) -> dict[str, list[RatedTurn]]:
    """The rated turns that nothing is fitted on; of DBDC3 every third."""
    sets: dict[str, list[RatedTurn]] = {}
    for turn in read_rated_turns(folder / RATINGS_FILE):
        if turn.set_name == DAILYDIALOG or not turn.is_fitted_on:
            sets.setdefault(turn.set_name, []).append(turn)
    return {**sets, "dbdc3": read_dbdc3(folder / DBDC3_FILE)[::DBDC3_STEP]}


def _train(
    job: Ablation, run: Run, material: Material, vectors: RowVectors
) -> tuple[QualityModel, Encoder, ValueFormula]:
    shares = {kind: share for kind, share in SHARES.items() if kind != run.without}
    prepared = replace(_prepared(job), recipe=ExampleRecipe(shares=shares), seed=run.seed)
    folder = job.output / run.name
    files = [folder / f"groups{part}.jsonl.gz" for part in range(len(prepared.group_counts))]
    write_parts(material, files, prepared)
    training = QualityJob(
        data=job.data,
        output=folder,
        settings=QualitySettings(job.encoder),
        recipe=QualityRecipe(),
        preparation=prepared,
        seed=run.seed,
    )
    model, encoder = learn_heads(training, files, vectors) if job.frozen else learn_parts(training, files)
    return model, encoder, fit_formula(model, encoder, read_fitted_turns(job.data, with_dailydialog=False))


def _measure(
    job: Ablation,
    model: QualityModel,
    encoder: Encoder,
    formula: ValueFormula,
    sets: Mapping[str, Sequence[RatedTurn]],
    spoilt: Spoilt,
) -> dict[str, dict[str, float]]:
    agreement = {
        name: measure_set(turns, score_heads(model, encoder, turns, formula), formula)[VALUE]
        for name, turns in sets.items()
    }
    accuracy = measure_adversarial(model, encoder, job.data / ADVERSARIAL_FILE, CONTEXTS)
    kinds = {kind.value: measure_separation(model, encoder, formula, turns) for kind, turns in spoilt.items() if turns}
    return {
        "agreement": agreement,
        "accuracy": {
            name: round(float(np.mean([split[name] for split in accuracy.values()])), 4)
            for name in ("random", "adversarial")
            if accuracy
        },
        **{f"separated by {part}": {kind: each[part] for kind, each in kinds.items()} for part in (VALUE, *HEADS)},
    }


def measure_separation(
    model: QualityModel, encoder: Encoder, formula: ValueFormula, turns: Sequence[tuple[SpokenTurn, str]]
) -> dict[str, float]:
    """Areas under the ROC curve, real against made-up responses in the same contexts: of the value and each head."""
    asked = [(turn.context, turn.response) for turn, _ in turns] + [(turn.context, made) for turn, made in turns]
    heads = score_texts(model, encoder, asked, formula)
    labels = np.repeat([1.0, 0.0], len(turns))
    columns = {VALUE: formula.compute(heads), **{name: heads[:, place] for place, name in enumerate(HEADS)}}
    return {name: round(compute_auc(column, labels), 4) for name, column in columns.items()}
