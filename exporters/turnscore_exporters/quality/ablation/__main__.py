"""`python -m turnscore_exporters.quality.ablation`: what each kind of made-up responses is worth, at a small scale."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.reported_errors import reported_errors

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.ablation.page import format_runs
from turnscore_exporters.quality.ablation.runs import Ablation, run_ablation
from turnscore_exporters.quality.negatives import NegativeKind


def main(
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    output: Annotated[Path, typer.Option(help="Folder for checkpoints and figures; an interrupted command goes on.")],
    scale: Annotated[float, typer.Option(min=0.001, max=1, help="Share of the starter's training.")] = 0.04,
    seeds: Annotated[int, typer.Option(min=1, help="Runs with all kinds: how far a run is from the next.")] = 3,
    kind: Annotated[list[NegativeKind] | None, typer.Option(help="A kind to leave out; repeatable. Default: each.")] = (
        None
    ),
    frozen: Annotated[bool, typer.Option(help="Leave the encoder as it came: the heads alone learn.")] = False,
) -> None:
    """Print the table of what each kind of made-up responses is worth."""
    with reported_errors(ExporterError):
        kinds = kind or list(NegativeKind)
        job = Ablation(data=data, output=output, scale=scale, seeds=seeds, kinds=kinds, frozen=frozen)
        runs = run_ablation(job)
    typer.echo(format_runs(runs))


if __name__ == "__main__":
    typer.run(main)
