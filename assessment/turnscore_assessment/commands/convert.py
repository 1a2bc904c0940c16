"""`turnscore-assess convert`: the published ratings of Ji et al. (ACL 2022) in the form of docs/assessment.md."""

from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.ratings.published_form import read_published
from turnscore_assessment.ratings.rating_file import write_ratings
from turnscore_assessment.reported_errors import reported_errors

Sources = Annotated[
    list[Path],
    typer.Argument(
        exists=True, dir_okay=False, help="All files of one run: workers who passed and workers who failed."
    ),
]


def run(
    sources: Sources,
    output: Annotated[Path, typer.Option(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    study: Annotated[str, typer.Option(help="The study's name; default: the output's.")] = "",
) -> None:
    """Write the published conversations of one run as a ratings file."""
    if any(output.exists() and output.samefile(source) for source in sources):
        raise typer.BadParameter("must differ from the input: it would be overwritten", param_hint="--output")
    with reported_errors():
        ratings = read_published(sources, study or output.name.partition(".")[0])
        write_ratings(output, ratings)
    workers = {dialogue.worker for dialogue in ratings.dialogues}
    typer.echo(f"wrote {output}: {len(ratings.dialogues)} rated dialogues of {len(workers)} workers")
