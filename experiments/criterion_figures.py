"""Measures criteria learned from people's judgements of turns that quality's encoder was not trained on.

    .venv-dev/bin/python experiments/criterion_figures.py DATA results/criterion.json
    .venv-dev/bin/python experiments/criterion_figures.py DATA results/criterion.json --deep empathetic

Nine behaviours of abc-eval, four grades of mrbench's tutors and dstc7's `informative`, each from 200, 500, 1,000 and
2,000 rows or all that there are: what they rank of unseen dialogues, next to the response's length, TF-IDF with a
logistic regression on the same rows, and the head of quality that is nearest. It measures only: nothing that ships is
made of these sets. `--deep` adds to a file of such figures what training the upper layers gives for some criteria.
Intervals of 95 %, by bootstrap over dialogues.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from quality_figures import read_starter, write_record
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import read_rows
from turnscore_core.scorers.quality import read_heads
from turnscore_exporters.criterion.deep import train_deep
from turnscore_exporters.criterion.judgements import HELD_OUT, MARK, TRAIN, FeatureReader, Judgements
from turnscore_exporters.criterion.learning import HeldOut, draw_rows, fit_head
from turnscore_exporters.criterion.training import score_baselines

SIZES, MOST_ROWS = (200, 500, 1000), 2000
FEWEST_MARKS = 8  # Held-out rows with a behaviour, below which there is nothing to measure.


def marks_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The row's marks as 0 to 1, by criterion; of a behaviour whether half the people saw it."""
    if row["set"] == "abc-eval":
        return {name: float(share >= 0.5) for name, share in row["behaviours"].items()}
    if row["set"] == "mrbench":
        return {name: float(mark) for name, mark in row["others"].items()}
    return {"informative": (row["informative"] - 1) / 4}


def read_sets(path: Path) -> dict[str, list[LabelledTurn]]:
    """The turns of each set, `labels` holding all marks."""
    found: dict[str, list[LabelledTurn]] = {}
    for _, row in read_rows(path):
        if row["set"] not in ("abc-eval", "mrbench", "dstc7"):
            continue
        speakers = [each if each == "user" else "system" for each in row["speakers"]]
        found.setdefault(row["set"], []).append(
            LabelledTurn(
                set_name=row["set"],
                dialogue=row["dialogue"],
                split=TRAIN if row["split"] == "train" else HELD_OUT,
                context=tuple(zip(speakers, row["context"], strict=True)),
                response=row["response"],
                labels=marks_of(row),
            )
        )
    return found


def measure(turns: list[LabelledTurn], reader: FeatureReader) -> dict[str, Any]:
    """The figures of one criterion, whose marks the turns have."""
    read = reader.read(turns)
    features, heads = read.astype(np.float64), read_heads(reader.answer(read))
    judged = Judgements(turns)
    train, held = np.flatnonzero(judged.part(TRAIN)), np.flatnonzero(judged.part(HELD_OUT))
    unseen = HeldOut(judged.wanted[held], judged.dialogue_of[held])
    found: dict[str, Any] = {
        "measure": unseen.measure,
        "rows": len(turns),
        "held-out rows": len(held),
        "held-out dialogues": len(np.unique(judged.dialogue_of[held])),
        "mean mark": round(float(judged.wanted.mean()), 3),
    }
    if min(judged.wanted[held].sum(), (1 - judged.wanted[held]).sum()) < FEWEST_MARKS:
        return {**found, "left out": "too few held-out rows have it"}
    most = min(MOST_ROWS, len(train))
    for size in (*SIZES, most):
        generator = np.random.default_rng(size)
        figures: dict[str, list[tuple[float, Floats]]] = {}
        for _ in range(most // size if size < most else 1):
            chosen = train[draw_rows(generator, np.unique(judged.dialogue_of[train], return_inverse=True)[1], size)]
            if not np.ptp(judged.wanted[chosen]):
                continue
            rows = np.concatenate([chosen, held])
            scores = dict(score_baselines(Judgements([turns[row] for row in rows]), heads[rows]))
            scores = {name.split(",")[0]: each[len(chosen) :] for name, each in scores.items()}
            head = fit_head(features[chosen], judged.wanted[chosen], judged.dialogue_of[chosen])
            for name, each in {"criterion": head.predict(features[held]), **scores}.items():
                figures.setdefault(name, []).append((unseen.agree(each), unseen.resample(each)))
        found[f"{size} rows"] = {name: summarise(each) for name, each in figures.items()} | {
            f"criterion over {name}": summarise(
                [
                    (own - other, resampled - others)
                    for (own, resampled), (other, others) in zip(figures["criterion"], each, strict=True)
                ]
            )
            for name, each in figures.items()
            if name != "criterion"
        }
    return found


def summarise(draws: list[tuple[float, Floats]]) -> list[float]:
    """The mean over draws with its interval: [figure, low, high]."""
    low, high = np.nanpercentile(np.mean([resampled for _, resampled in draws], axis=0), [2.5, 97.5])
    return [round(float(each), 3) for each in (np.mean([value for value, _ in draws]), low, high)]


def list_criteria(data: Path) -> Iterator[tuple[str, list[LabelledTurn]]]:
    """Set and criterion, and the set's turns with its marks."""
    for name, turns in read_sets(data / "turn_feedback.jsonl.gz").items():
        for criterion in turns[0].labels:
            yield f"{name}, {criterion}", [replace(turn, labels={MARK: turn.labels[criterion]}) for turn in turns]


def measure_deep(turns: list[LabelledTurn], reader: FeatureReader, folder: Path) -> dict[str, Any]:
    """What the upper layers, trained on as many rows, give of one criterion."""
    judged = Judgements(turns)
    train, held = judged.part(TRAIN), judged.part(HELD_OUT)
    if train.sum() > MOST_ROWS:
        numbered = np.unique(judged.dialogue_of[train], return_inverse=True)[1]
        chosen = np.flatnonzero(train)[draw_rows(np.random.default_rng(MOST_ROWS), numbered, MOST_ROWS)]
        rows = np.sort(np.concatenate([chosen, np.flatnonzero(held)]))
        return measure_deep([turns[row] for row in rows], reader, folder)
    features, unseen = reader.read(turns), HeldOut(judged.wanted[held], judged.dialogue_of[held])
    wanted, dialogue_of = judged.wanted[train], judged.dialogue_of[train]
    head = fit_head(features[train].astype(np.float64), wanted, dialogue_of)
    found = train_deep(reader.loaded, judged, features, folder)
    deep = fit_head(found.features[train].astype(np.float64), wanted, dialogue_of)
    scores = [head.predict(features[held]), deep.predict(found.features[held])]
    (own, resampled), (without, others) = ((unseen.agree(each), unseen.resample(each)) for each in scores[::-1])
    return {
        "encoder": reader.loaded.model,
        "rows": len(wanted),
        "step": found.recipe["best_step"],
        "criterion": summarise([(without, others)]),
        "deep": summarise([(own, resampled)]),
        "deep over criterion": summarise([(own - without, resampled - others)]),
    }


def add_deep(path: Path, data: Path, reader: FeatureReader, wanted: list[str], folder: Path) -> None:
    """Adds the figures of `measure_deep` to those of a file, criterion by criterion."""
    for name, turns in list_criteria(data):
        if name.partition(", ")[2] in wanted:
            found = measure_deep(turns, reader, folder)
            figures = json.loads(path.read_text(encoding="utf-8"))
            figures["criteria"][name]["deep"] = found
            path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main(
    data: Path,
    output: Path,
    features: Path = Path("build/features"),
    deep: Annotated[list[str] | None, typer.Option(metavar="CRITERION", help="Add figures of training deeper.")] = None,
) -> None:
    """Measures, and writes the figures to OUTPUT, or adds those of `--deep` to it."""
    bundle = read_starter("quality")
    reader = FeatureReader(bundle, features)
    if deep:
        add_deep(output, data, reader, deep, features)
        return
    criteria = {name: measure(turns, reader) for name, turns in list_criteria(data)}
    write_record(output, "criterion_figures.py", {"encoder": bundle.manifest.reference, "criteria": criteria})


if __name__ == "__main__":
    typer.run(main)
