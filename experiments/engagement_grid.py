"""Engagement's comparison: labels x pooling x frozen or fine-tuned encoder, with and without transfer.

.venv-dev/bin/python experiments/engagement_grid.py --data DATA --output build/grid --report build/grid.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from turnscore_assessment.data.dialogues import is_sample
from turnscore_assessment.figures import BinaryAgreement
from turnscore_assessment.rendering import table_head, table_row
from turnscore_exporters.data.pairs import EngagementData, Labels, read_engagement_data
from turnscore_exporters.engagement.model import EngagementModel, EngagementSettings, TokenPooling, load_model
from turnscore_exporters.engagement.report import (
    BOOTSTRAP_ROUNDS,
    TestSet,
    list_test_sets,
    print_counts,
    report_baselines,
    report_model,
)
from turnscore_exporters.engagement.training import PairVectors, PaperRecipe, train_paper_recipe, transfer
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_exporters.training.loop import TRAINING_FILE, claim_choices, claim_folder

GRID_FILE = "grid.json"


def run_grid(
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    output: Annotated[Path, typer.Option(help="Folder for the figures; an interrupted run resumes.")],
    encoder: Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")] = "minilm-l6",
    checkpoint: Annotated[list[Path] | None, typer.Option(help="Checkpoints to compare with the grid.")] = None,
    report: Annotated[Path | None, typer.Option(help="File for the tables, as Markdown.")] = None,
    with_fine_tuned: Annotated[bool, typer.Option(help="Also train the fine-tuned encoders: minutes each.")] = True,
    seed: int = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")] = 0,
) -> None:
    """Trains and measures what `output` has no figures for; writes `grid.json` after each model, then the tables."""
    if threads:
        torch.set_num_threads(threads)
    claim_folder(output, data)
    claim_choices(output / TRAINING_FILE, {"encoder": encoder, "seed": seed})
    labelled = read_engagement_data(data)
    print_counts(labelled, checked=not is_sample(data))
    test_sets = list_test_sets(labelled)
    baselines = report_baselines(test_sets, BOOTSTRAP_ROUNDS)
    reports = read_json(output / GRID_FILE)
    grid = Grid(labelled, test_sets, encoder, seed, output)
    for recipe in _list_recipes(with_fine_tuned):
        if f"{recipe.name}-transfer" not in reports:
            reports.update(grid.measure(recipe))
            write_json(output / GRID_FILE, reports)
    for folder in checkpoint or ():
        model, own_encoder = load_model(folder)
        reports[folder.name] = report_model(model, PairVectors(model, own_encoder), test_sets, BOOTSTRAP_ROUNDS)
        write_json(output / GRID_FILE, reports)
    tables = format_tables(baselines, reports)
    if report:
        report.write_text(tables, encoding="utf-8")
    typer.echo(tables)


SET_TITLES = {
    "published": "ConvAI test, published labels",
    "corrected": "ConvAI test, corrected labels",
    "judged": "297 AMT pairs",
    "thumbs": "ConvAI test, thumbs",
}


def format_tables(
    baselines: Mapping[str, Mapping[str, BinaryAgreement]], models: Mapping[str, Mapping[str, Any]]
) -> str:
    """One Markdown table per test set: a row per model, the two lengths first."""
    parts = []
    for name, title in SET_TITLES.items():
        pairs = next(iter(baselines[name].values())).pairs
        parts.append(f"### {title} ({pairs} pairs)\n")
        parts += table_head(
            ["model", "balanced accuracy", "ROC AUC", "Pearson", "Spearman", "Spearman given characters"]
        )
        for kind, agreement in baselines[name].items():
            parts.append(_format_row(f"*{kind} of the reply*", asdict(agreement), None))
        for model_name, report in models.items():
            given = report[name]["given_length"]["characters"]["spearman"]
            parts.append(_format_row(model_name, report[name], given))
        parts.append("")
    return "\n".join(parts)


def _format_row(name: str, figures: Mapping[str, Any], given_length: float | None) -> str:
    cells = [_format_interval(figures[key]) for key in ("balanced_accuracy", "auc", "pearson", "spearman")]
    return table_row([name, *cells, "" if given_length is None else f"{given_length:.3f}"])


def _format_interval(interval: Mapping[str, float]) -> str:
    return f"{interval['value']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _list_recipes(with_fine_tuned: bool) -> Iterator[PaperRecipe]:
    for is_fine_tuned in (False, True) if with_fine_tuned else (False,):
        for pooling, labels in product(TokenPooling, Labels):
            yield PaperRecipe(labels=labels, pooling=pooling, is_fine_tuned=is_fine_tuned)


class Grid:
    """Trains and measures one recipe after the other; both readings share the frozen encoders' vectors."""

    def __init__(
        self, data: EngagementData, test_sets: Sequence[TestSet], encoder_name: str, seed: int, output: Path
    ) -> None:
        self._data = data
        self._test_sets = test_sets
        self._encoder_name = encoder_name
        self._seed = seed
        self._output = output
        self._frozen: dict[TokenPooling, tuple[Encoder, PairVectors]] = {}

    def measure(self, recipe: PaperRecipe) -> dict[str, Any]:
        """The figures of one recipe before and after the transfer step."""
        typer.echo(f"training {recipe.name}")
        encoder, vectors = self._freeze(recipe.pooling)
        if recipe.is_fine_tuned:
            encoder = load_encoder(self._encoder_name)
        folder = self._output / recipe.name
        model = train_paper_recipe(self._data, encoder, recipe, self._seed, folder, vectors)
        if recipe.is_fine_tuned:
            vectors = PairVectors(model, encoder)
        before = report_model(model, vectors, self._test_sets, BOOTSTRAP_ROUNDS)
        moved = replace(recipe, with_transfer=True)
        transfer(model, encoder, vectors, self._data.transfer, moved, self._seed)
        return {recipe.name: before, moved.name: report_model(model, vectors, self._test_sets, BOOTSTRAP_ROUNDS)}

    def _freeze(self, pooling: TokenPooling) -> tuple[Encoder, PairVectors]:
        if pooling not in self._frozen:
            encoder = load_encoder(self._encoder_name)
            model = EngagementModel(encoder.model, EngagementSettings(encoder=encoder.name, pooling=pooling))
            self._frozen[pooling] = encoder, PairVectors(model, encoder)
        return self._frozen[pooling]


if __name__ == "__main__":
    typer.run(run_grid)
