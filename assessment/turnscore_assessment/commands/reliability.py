"""`turnscore-assess reliability`: how far raters agree, by intraclass correlations and Krippendorff's alpha."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from turnscore_assessment.commands.options import RoundsOption, SeedOption
from turnscore_assessment.console import open_console
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.reported_errors import reported_errors


def run(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="Ratings in which `dialogue` names items, or CSV of item, rater, value."
        ),
    ],
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the figures, as JSON.")] = None,
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Measure how far raters agree beyond chance, for each criterion; intervals are of other items."""
    from turnscore_assessment.reliability.rated_items import read_items
    from turnscore_assessment.reliability.reliability import FIGURES, measure_reliability

    with reported_errors():
        found = [measure_reliability(items, rounds, seed) for items in read_items(file)]
    table = Table("ratings", "items", "raters per item", *FIGURES)
    for each in found:
        table.add_row(each.name, str(each.items), f"{each.raters:.1f}", *(str(each.figures[name]) for name in FIGURES))
    console = open_console()
    console.print(table)
    for each in found:
        if all(math.isnan(figure.value) for figure in each.figures.values()):
            typer.echo(f"{each.name}: {'; '.join(each.undefined) or 'all ratings are the same'}")
    typer.echo("intervals of 95 %: other items with these raters; too narrow for other raters")
    if output:
        write_text(output, to_json_text([vars(each) for each in found]))
        typer.echo(f"wrote {output}")
