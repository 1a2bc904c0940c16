"""One training of a system: trains, measures, and leaves training and report in a folder."""

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import compute_auc
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.training.loop import REPORT_FILE, STATE_FOLDER, TRAINING_FILE, claim_folder

from paper_systems.classifiers import train_birnn, train_svm
from paper_systems.data import Baseline, EvalTurn, RandomNegatives
from paper_systems.page import ask, measure_adversarial, measure_baseline, read_adversarial, read_eval_sets
from paper_systems.plan import TrainingPlan
from paper_systems.trainers import TRAINERS, Train

SYSTEMS: Mapping[str, Train] = {**TRAINERS, "svm": train_svm, "bi-rnn": train_birnn}
MOST_HELD_OUT = 1000  # Held-out exchanges that are scored. Chosen: an AUC is then known to some .01.
PATHS_FILE = "paths.json"  # Below the state folder: what a report names by the last part of a path alone, whole.
ROUNDS, SEED = 500, 0  # Resamples of dialogues, as docs/agreement.md takes them.
# Scored contexts of DailyDialog++, with fifteen responses each. Chosen as the number of held-out exchanges.
MOST_CONTEXTS, SLOW_CONTEXTS = 300, 20
SLOW = ("usr",)
# Turns per set, and held-out exchanges, for USR: it reads each some fifteen times. Chosen: a third of fed's.
SLOW_TURNS = 100


def run_job(plan: TrainingPlan) -> dict[str, Any]:
    """Trains and measures; returns the report, which is also written next to the checkpoint.

    A finished run with the same options is not repeated. Raises BadFileError for data.
    """
    described, output, is_slow = _describe(plan), plan.output, plan.name in SLOW
    claim_folder(output, plan.data)
    paths = {"encoder": plan.encoder, "words": str(plan.words)}
    known = read_json(output / STATE_FOLDER / PATHS_FILE)
    write_json(output / STATE_FOLDER / PATHS_FILE, paths)
    done = read_json(output / REPORT_FILE)
    if done and done.get("choices") == described["choices"] and known in ({}, paths):
        typer.echo(f"{plan.name}: is trained already in {output}")
        return done
    is_resumed = any((output / STATE_FOLDER).glob("*.state"))
    begun = time.perf_counter(), time.process_time()
    sets = read_eval_sets(plan.data)
    contexts = read_adversarial(plan.data, SLOW_CONTEXTS if is_slow else MOST_CONTEXTS, plan.seed)
    judged = [ask(each) for found in sets for each in found.items]
    judged += [each for found in contexts for own in found.values() for each in own]
    plan = replace(plan, judged=judged)
    trained = SYSTEMS[plan.name](plan)
    report = {"name": plan.name, **described, "training": trained.facts}
    if trained.exchanges:
        report["trained_on"] = trained.exchanges
        most_held_out = SLOW_TURNS if is_slow else MOST_HELD_OUT
        report["held_out"] = measure_held_out(trained.baseline, plan.parts[1], plan.seed, most_held_out)
    most = min(plan.most_turns, SLOW_TURNS) if is_slow else plan.most_turns
    report["development"] = measure_baseline(trained.baseline, sets, most, (ROUNDS, SEED), trained.seen)
    if contexts:
        report["adversarial"] = measure_adversarial(trained.baseline, contexts)
    report["seconds"] = round(time.perf_counter() - begun[0])
    report["cpu_seconds"] = round(time.process_time() - begun[1])
    report["resumed"] = is_resumed
    write_json(output / TRAINING_FILE, {**described, **trained.facts})
    write_json(output / REPORT_FILE, report)
    return report


def measure_held_out(baseline: Baseline, exchanges: Sequence[LabelledTurn], seed: int, most: int) -> dict[str, Any]:
    """AUC of true against random replies of held-out dialogues, for each score and for the reply's length."""
    chosen = list(exchanges)
    random.Random(seed).shuffle(chosen)
    chosen = chosen[:most]
    negatives = RandomNegatives(chosen, seed)
    wrong = [chosen[negatives.draw(index, 0)].response for index in range(len(chosen))]
    asked = [EvalTurn(context=(each.query,), response=each.response) for each in chosen]
    asked += [EvalTurn(context=(each.query,), response=other) for each, other in zip(chosen, wrong, strict=True)]
    labels = [1] * len(chosen) + [0] * len(chosen)
    scores = baseline.score(asked)
    lengths = np.array([len(each.response) for each in asked], dtype=np.float64)
    return {
        "exchanges": len(chosen),
        "auc": {name: round(compute_auc(found, labels), 4) for name, found in scores.items()},
        "auc_of_length": round(compute_auc(lengths, labels), 4),
    }


def _describe(plan: TrainingPlan) -> dict[str, Any]:
    """The options, with file names alone, since folders differ between machines."""
    choices: Mapping[str, Any] = {
        "baseline": plan.name,
        "encoder": Path(plan.encoder).name,
        "words": None if plan.words is None else plan.words.name,
        **asdict(plan.size),
        "seed": plan.seed,
        "most_turns": plan.most_turns,
    }
    return {
        "choices": choices,
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
