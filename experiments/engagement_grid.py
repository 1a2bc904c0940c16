"""Engagement's comparison: labels x pooling, with and without transfer.

.venv-dev/bin/python experiments/engagement_grid.py --data DATA --output build/grid
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import torch
import typer
from turnscore_assessment.data.dialogues import is_sample
from turnscore_assessment.figures import Interval
from turnscore_exporters.data.pairs import Labels, read_engagement_data
from turnscore_exporters.engagement.model import EngagementModel, EngagementSettings, TokenPooling, load_model
from turnscore_exporters.engagement.training import (
    PairVectors,
    PaperRecipe,
    list_test_sets,
    print_counts,
    report_baselines,
    report_model,
    train_paper_recipe,
    transfer,
)
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import TRAINING_FILE, claim_choices, claim_folder

GRID_FILE = "grid.json"


def run_grid(
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    output: Annotated[Path, typer.Option(help="Folder for the figures; an interrupted run resumes.")],
    encoder: Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")] = "minilm-l6",
    checkpoint: Annotated[list[Path] | None, typer.Option(help="Checkpoints to compare with the grid.")] = None,
    seed: int = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")] = 0,
) -> None:
    """Trains and measures what `output` has no figures for; writes `grid.json` after each model, and prints it."""
    if threads:
        torch.set_num_threads(threads)
    claim_folder(output, data)
    claim_choices(output / TRAINING_FILE, {"encoder": encoder, "seed": seed})
    labelled = read_engagement_data(data)
    print_counts(labelled, checked=not is_sample(data))
    test_sets = list_test_sets(labelled)
    baselines = report_baselines(test_sets)
    reports = read_json(output / GRID_FILE)
    for pooling in get_args(TokenPooling):
        read = load_encoder(encoder)
        vectors = PairVectors(EngagementModel(read.model, EngagementSettings(encoder=read.name, pooling=pooling)), read)
        for labels in Labels:
            recipe = PaperRecipe(labels=labels, pooling=pooling)
            moved = replace(recipe, with_transfer=True)
            if moved.name in reports:
                continue
            typer.echo(f"training {recipe.name}")
            model, _ = train_paper_recipe(labelled, read, recipe, seed, output / recipe.name, vectors)
            reports[recipe.name] = report_model(model, vectors, test_sets)
            transfer(model, read, vectors, labelled.transfer, moved, seed)
            reports[moved.name] = report_model(model, vectors, test_sets)
            write_json(output / GRID_FILE, reports)
    for folder in checkpoint or ():
        model, own_encoder = load_model(folder)
        reports[folder.name] = report_model(model, PairVectors(model, own_encoder), test_sets)
        write_json(output / GRID_FILE, reports)
    for test_set in test_sets:
        of_models = {f"*{kind} of the reply*": each for kind, each in baselines[test_set.name].items()}
        of_models |= {name: report[test_set.name] for name, report in reports.items()}
        typer.echo(f"{test_set.name} ({len(test_set.pairs)} pairs)")
        for name, figures in of_models.items():
            cells = [f"{key} {Interval(**figures[key])}" for key in ("balanced_accuracy", "auc", "pearson", "spearman")]
            typer.echo(f"  {name}: {', '.join(cells)}")


if __name__ == "__main__":
    typer.run(run_grid)
