"""Trains the papers' other systems one after another, measures each, and writes all figures.

.venv-dev/bin/python experiments/baselines.py --data DATA --output build/baselines --results results/baselines.json
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from development_sets import to_results
from paper_systems.job import SYSTEMS, run_job
from paper_systems.page import build_page, collect_rows, find_trained, read_eval_sets, read_reports
from paper_systems.plan import TrainingPlan, find_size
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.rendering import to_markdown
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    output: Annotated[Path, typer.Option(help="Folder for all systems, a folder each; an interrupted run resumes.")],
    names: Annotated[list[str] | None, typer.Argument(help=f"Systems to train: {', '.join(SYSTEMS)}.")] = None,
    results: Annotated[Path | None, typer.Option(help="File for the figures, JSON.")] = None,
    page: Annotated[Path | None, typer.Option(help="File for the figures, Markdown.")] = None,
    rows: Annotated[Path | None, typer.Option(help="File for the rows of the agreement table, JSON.")] = None,
    larger: Annotated[Path | None, typer.Option(help="Output folder of a run with --paper-size, to compare.")] = None,
    paper_size: Annotated[bool, typer.Option("--paper-size", help="Train about as long as published: hours.")] = False,
    encoder: Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")] = "minilm-l6",
    words: Annotated[Path | None, typer.Option(help="Word vectors, a line per word. Default: the encoder's.")] = None,
    exchanges: Annotated[int | None, typer.Option(min=100, help="Exchanges to draw of dialogue_text.jsonl.gz.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each loop in place of the size's.")] = None,
    turns: Annotated[int, typer.Option(min=10, help="Most judged turns per set.")] = 3000,
    seed: int = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")] = 0,
    any_counts: Annotated[bool, typer.Option(help="Accept other ConvAI pair counts than the published ones.")] = False,
) -> None:
    """Train the papers' other systems, skipping finished ones, and report their agreement with people."""
    chosen = names or list(SYSTEMS)
    if threads:
        torch.set_num_threads(threads)
    with reported_errors(ExporterError):
        compared = [] if larger is None else read_reports(find_trained(larger, list(SYSTEMS)))
        sizes = {
            name: find_size(name, is_full=paper_size).with_choices(exchanges=exchanges, steps=steps) for name in chosen
        }
        for name, size in sizes.items():
            run_job(
                TrainingPlan(
                    name=name, data=data, output=output / name, size=size, encoder=encoder, words=words, seed=seed,
                    most_turns=turns, check_counts=not any_counts,
                )
            )  # fmt: skip
        reports = read_reports([output / name for name in chosen])
    told = ["--paper-size"] if paper_size else []
    command = " ".join(["experiments/baselines.py --data DATA --output OUTPUT", *told, *(names or ())])
    found = build_page(reports, compared, command)
    if results is not None:
        write_text(results, to_json_text(to_results(found)))
    if page is not None:
        write_text(page, to_markdown(found))
    if rows is not None:
        items = {each.name: len(each.items) for each in read_eval_sets(data)}
        write_json(rows, collect_rows(reports, command, items))
    typer.echo(to_markdown(found))


if __name__ == "__main__":
    app()
