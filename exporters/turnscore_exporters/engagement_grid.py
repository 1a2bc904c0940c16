"""The comparison of the training report: labels x pooling x frozen or fine-tuned encoder, with and without transfer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import typer

from turnscore_exporters.convai import Labels
from turnscore_exporters.encoders import load_encoder
from turnscore_exporters.engagement_data import EngagementData, EngagementPaths, read_engagement_data
from turnscore_exporters.engagement_model import Pooling, load_model
from turnscore_exporters.engagement_recipes import PaperRecipe, train_paper_recipe, transfer
from turnscore_exporters.engagement_report import TestSet, format_tables, list_test_sets, report_baselines, report_model
from turnscore_exporters.engagement_training import TextVectors
from turnscore_exporters.train_engagement import BOOTSTRAP_ROUNDS, print_counts, write_json

GRID_FILE = "grid.json"


def run_grid(
    data_folder: Path,
    output: Path,
    encoder_name: str,
    checkpoints: Sequence[Path],
    markdown: Path | None,
    with_fine_tuned: bool,
    seed: int,
    threads: int,
) -> None:
    """Trains and measures what `output` has no figures of yet; writes `grid.json` after each model and the tables."""
    if threads:
        torch.set_num_threads(threads)
    data = read_engagement_data(EngagementPaths.in_folder(data_folder))
    print_counts(data)
    test_sets = list_test_sets(data)
    baselines = report_baselines(test_sets, BOOTSTRAP_ROUNDS)
    reports = _read_reports(output / GRID_FILE)
    for recipe in _list_recipes(with_fine_tuned):
        if f"{recipe.name}-transfer" not in reports:
            reports.update(_measure_recipe(data, test_sets, recipe, encoder_name, seed, output / recipe.name))
            write_json(output / GRID_FILE, reports)
    for folder in checkpoints:
        model, encoder = load_model(folder)
        reports[folder.name] = report_model(model, TextVectors(model, encoder), test_sets, BOOTSTRAP_ROUNDS)
        write_json(output / GRID_FILE, reports)
    tables = format_tables(baselines, reports)
    if markdown:
        markdown.write_text(tables, encoding="utf-8")
    typer.echo(tables)


def _list_recipes(with_fine_tuned: bool) -> Iterator[PaperRecipe]:
    for is_fine_tuned in (False, True) if with_fine_tuned else (False,):
        for labels, pooling in product(Labels, Pooling):
            yield PaperRecipe(labels, pooling, is_fine_tuned)


def _measure_recipe(
    data: EngagementData,
    test_sets: Sequence[TestSet],
    recipe: PaperRecipe,
    encoder_name: str,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """The figures of one recipe before and after the transfer step."""
    typer.echo(f"training {recipe.name}")
    encoder = load_encoder(encoder_name)
    model = train_paper_recipe(data, encoder, recipe, seed, folder)
    vectors = TextVectors(model, encoder)
    before = report_model(model, vectors, test_sets, BOOTSTRAP_ROUNDS)
    moved = replace(recipe, with_transfer=True)
    transfer(model, vectors, data.transfer, moved.transfer_steps, seed)
    return {recipe.name: before, moved.name: report_model(model, vectors, test_sets, BOOTSTRAP_ROUNDS)}


def _read_reports(path: Path) -> dict[str, Any]:
    reports: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reports
